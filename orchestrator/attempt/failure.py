"""How an attempt at a run failed: who, where, with which command, exit code and last words."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

from driple.contracts.errors import RunFailed

SHOWN_LINES = 10


@dataclass(frozen=True)
class FailureOrigin:
    """What is known of the process that failed."""

    host: str
    task: str = ""
    command: str = ""
    exit_code: int | None = None
    words: Sequence[str] = field(default_factory=tuple)
    """The end of its log."""


class AttemptError(RunFailed):
    """One attempt at a run did not end well; another may."""

    def __init__(self, reason: str, origin: FailureOrigin | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.origin = origin

    def lines(self) -> Sequence[str]:
        if self.origin is None:
            return [self.reason]
        lines = [self.reason]
        if self.origin.command:
            lines.append(f"  command on {self.origin.host}: {self.origin.command}")
        lines += [f"  | {line}" for line in self.origin.words[-SHOWN_LINES:]]
        return lines


class PermanentError(RunFailed):
    """Another attempt would end as this one did."""


class StoppedError(RunFailed):
    """The user wants it to end."""


def exit_text(exit_code: int | None) -> str:
    """An exit code in words."""
    if exit_code is None:
        return "was not seen to end"
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was killed by signal {-exit_code}"
