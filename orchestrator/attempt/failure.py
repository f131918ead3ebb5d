"""Errors of an attempt, with the host, command, exit code and log of the process that failed."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

from driple.contracts.errors import RunFailed

SHOWN_LINES = 10


@dataclass(frozen=True)
class FailureOrigin:
    """The process that failed."""

    host: str
    task: str = ""
    command: str = ""
    exit_code: int | None = None
    words: Sequence[str] = field(default_factory=tuple)  # the end of its log
    sampler: bool = False  # whether the sampler of the task failed, and not the task itself


class AttemptError(RunFailed):
    """An attempt failed; a retry may succeed."""

    def __init__(self, reason: str, origin: FailureOrigin | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.origin = origin

    def lines(self) -> Sequence[str]:
        origin = self.origin or FailureOrigin("")
        command = [f"  command on {origin.host}: {origin.command}"] if origin.command else []
        return [self.reason, *command, *(f"  | {line}" for line in origin.words[-SHOWN_LINES:])]


class PermanentError(RunFailed):
    """A retry would fail in the same way."""


class StoppedError(RunFailed):
    """The user stopped the sweep."""


def exit_text(exit_code: int | None) -> str:
    """An exit code as text."""
    if exit_code is None:
        return "was not seen to end"
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was killed by signal {-exit_code}"
