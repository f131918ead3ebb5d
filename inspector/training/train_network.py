"""Runs a training loop to its end: chooses the best epoch, handles Ctrl-C, writes states to resume from."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driple.inspector.training.epochs import Loop
from driple.inspector.training.interrupts import DeferredInterrupt
from driple.inspector.training.seeds import repeatable
from driple.inspector.training.training_state import read_state, write_state

EVERY_S = 10.0
"""Seconds between two writes of the state: at most so much work is lost when the process is killed."""


@dataclass(frozen=True)
class Epoch:
    """The progress after an epoch."""

    number: int
    last: int
    """The epoch at which training stops without a better one."""
    row: Mapping[str, float]
    """`train_loss`, `val_loss`, `val_nrmse`, `seconds`."""
    best_nrmse: float
    best_epoch: int
    seconds: float


Watch = Callable[[Epoch], None]


@dataclass(frozen=True, eq=False)
class Fitted:
    """A training that ended."""

    best: Mapping[str, Any] = field(repr=False)
    """Weights of the best epoch; the network has them too."""
    history: list[dict[str, float]] = field(repr=False)
    """A row for each epoch; row 0 is before the first step."""
    best_epoch: int
    best_error: float
    """Validation error of the best epoch, by the `watch` of the configuration."""
    seconds: float
    interrupted: bool = False
    diverged: bool = False
    """The loss became NaN, and training stopped."""
    before: float = 0.0
    """Seconds before its first epoch: base model and initial weights."""

    @property
    def epochs(self) -> int:
        return len(self.history) - 1

    @property
    def best_nrmse(self) -> float:
        """Validation NRMSE of the best epoch."""
        return self.history[self.best_epoch]["val_nrmse"]


def fit(loop: Loop, watch: Watch | None, state_file: Path | None, resume: bool) -> Fitted:
    """Trains, and leaves the network with the weights of its best epoch.

    Ctrl-C ends it after the last whole epoch. `watch` receives every epoch; what it raises ends the training.

    Raises:
        BadInput: the state is of another training.
        DripleError: the loss is NaN from the beginning.
    """
    before = read_state(state_file, loop.at.fingerprint) if resume and state_file is not None else None
    if before is not None:
        loop.take(before)
    interrupted = False
    written = time.monotonic()
    try:
        with repeatable():
            while not loop.done():
                loop.step()
                if watch is not None and not loop.diverged:
                    watch(_told(loop))
                if state_file is not None and time.monotonic() - written >= EVERY_S:
                    write_state(state_file, loop.at)
                    written = time.monotonic()
    except KeyboardInterrupt:
        if not loop.at.history:
            raise
        interrupted = True
    at = loop.at
    with DeferredInterrupt() as ctrl_c:
        if state_file is not None:
            write_state(state_file, at)
        loop.learner.network.load_state_dict(at.best)
        loop.learner.network.eval()
    interrupted = interrupted or ctrl_c.came
    return Fitted(at.best, at.history, at.best_epoch, at.best_error, at.seconds, interrupted, loop.diverged)


def _told(loop: Loop) -> Epoch:
    at = loop.at
    last = min(loop.training.epochs, at.best_epoch + loop.training.patience)
    best = at.history[at.best_epoch]["val_nrmse"]
    return Epoch(len(at.history) - 1, last, at.history[-1], best, at.best_epoch, at.seconds)
