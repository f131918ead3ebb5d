"""Host and Channel: all that the controller asks of a machine. The kinds differ only in how a connection is got."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

KEPT_WORDS = 64 * 1024
"""Of what a remote process says on stderr, so much is kept from its end."""


@dataclass(frozen=True)
class Finished:
    """How a short command ended."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class Channel(Protocol):
    """A long-lived process on a host: lines in, lines out. It is made to end when its stdin closes."""

    def send(self, line: str) -> None:
        """Sends a line. Raises HostLost when the connection is gone."""

    def write(self, content: bytes) -> None:
        """Sends bytes as they are. Raises as `send` does."""

    def receive(self, timeout_s: float | None) -> str | None:
        """The next line without its end; None when there will be no more. Raises TimeoutError."""

    def close(self) -> None:
        """Closes it. Safe to call twice, and from another thread than the one that receives."""

    @property
    def last_words(self) -> str:
        """The end of what it said on stderr."""

    @property
    def exit_code(self) -> int | None:
        """None while it runs, or when it is not known."""


class Host(Protocol):
    """A machine. Every call has a time limit, and every word of a command reaches it as it is."""

    name: str

    def open(self) -> None:
        """Connects.

        Raises:
            HostRefused: login, key or host key; waiting does not help.
            HostLost: down, cut off or too slow; it may come back.
        """

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b"") -> Finished:
        """Runs a short command to its end."""

    def start(self, argv: Sequence[str]) -> Channel:
        """Starts a long-lived process."""

    def put(self, content: bytes, path: str, *, mode: int = 0o644, timeout_s: float = 60.0) -> None:
        """Writes a file: beside, then moved into place. Its folder exists; `~/` is the login's home."""

    def get(self, path: str, target: Path, *, timeout_s: float = 600.0) -> None:
        """Fetches a file."""

    def close(self) -> None:
        """Ends the connection. Safe to call twice."""
