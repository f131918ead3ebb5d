"""Host and Channel: the interface of a machine to the controller."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

KEPT_WORDS = 64 * 1024  # bytes kept from the end of the stderr of a remote process


@dataclass(frozen=True)
class Finished:
    """How a short command ended."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class Channel(Protocol):
    """A long-lived process on a host: lines in, lines out. It ends when its stdin closes."""

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
        """The end of its stderr."""

    @property
    def exit_code(self) -> int | None:
        """None while it runs, or if unknown."""


class Host(Protocol):
    """A machine. Every call has a time limit, and the words of a command are passed on unchanged."""

    name: str

    def open(self) -> None:
        """Connects. Raises HostRefused for a wrong login or key, HostLost if the host does not answer."""

    def run(self, argv: Sequence[str], *, timeout_s: float, stdin: bytes = b"") -> Finished:
        """Runs a short command to its end."""

    def start(self, argv: Sequence[str]) -> Channel:
        """Starts a long-lived process."""

    def put(self, content: bytes, path: str, *, mode: int = 0o644, timeout_s: float = 60.0) -> None:
        """Writes a file atomically. Its folder exists; `~/` is the home of the login."""

    def get(self, path: str, target: Path, *, timeout_s: float = 600.0) -> None:
        """Fetches a file."""

    def close(self) -> None:
        """Ends the connection. Safe to call twice."""
