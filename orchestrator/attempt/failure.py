"""How an attempt at a run failed: who, where, with which command, exit code and last words."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field

from driple.contracts.errors import RunFailed

SHOWN_LINES = 10


@dataclass(frozen=True)
class Blame:
    """What is known of the process that failed."""

    host: str
    task: str = ""
    command: str = ""
    exit_code: int | None = None
    words: Sequence[str] = field(default_factory=tuple)
    """The end of its log."""
    sampler: bool = False
    """Whether the sampler of the task failed, and not the task itself."""


class AttemptFailed(RunFailed):
    """One attempt at a run did not end well; another may."""

    def __init__(self, reason: str, blame: Blame | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.blame = blame

    def lines(self) -> Sequence[str]:
        if self.blame is None:
            return [self.reason]
        lines = [self.reason]
        if self.blame.command:
            lines.append(f"  command on {self.blame.host}: {self.blame.command}")
        lines += [f"  | {line}" for line in self.blame.words[-SHOWN_LINES:]]
        return lines


class Hopeless(RunFailed):
    """Another attempt would end as this one did."""


class Interrupted(RunFailed):
    """The user wants it to end."""


def ended_how(exit_code: int | None) -> str:
    """An exit code in words."""
    if exit_code is None:
        return "was not seen to end"
    if exit_code >= 0:
        return f"ended with exit code {exit_code}"
    try:
        return f"was killed by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was killed by signal {-exit_code}"
