"""Progress of a training: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from driple.contracts.command import printable

if TYPE_CHECKING:
    from driple.inspector.training.train_network import Epoch

BAR = 24
REDRAW_S = 0.1
LINE_S = 10.0


class ProgressBar:
    """On stderr, so that stdout has the result alone."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._next = 0.0
        self._first: tuple[int, int, float] | None = None
        self._drawn = False

    def __call__(self, member: int, epoch: Epoch, networks: int = 1) -> None:
        """Shows an epoch of one of the networks."""
        now = time.monotonic()
        if self._first is None or self._first[0] != member or epoch.number < self._first[1]:
            self._first = (member, epoch.number, now)
        last = epoch.number >= epoch.last
        if now < self._next and not last:
            return
        text = self._text(member, epoch, networks, now)
        if self._terminal:
            self._next = now + REDRAW_S
            filled = BAR * epoch.number // max(1, epoch.last)
            print(f"\r[{'#' * filled:<{BAR}}] {text}\x1b[K", end="", file=sys.stderr, flush=True)
            self._drawn = True
        else:
            self._next = now + LINE_S
            print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Removes the bar."""
        if self._drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._drawn = False

    def say(self, line: str) -> None:
        """Prints a line that stays."""
        self.clear()
        print(printable(line), file=sys.stderr, flush=True)

    def _text(self, member: int, epoch: Epoch, networks: int, now: float) -> str:
        which = f"network {member + 1}/{networks}, " if networks > 1 else ""
        return (
            f"{which}epoch {epoch.number}, validation NRMSE {100 * epoch.row['val_nrmse']:.2f} %, "
            f"best {100 * epoch.best_nrmse:.2f} % at {epoch.best_epoch}{self._left(epoch, now)}"
        )

    def _left(self, epoch: Epoch, now: float) -> str:
        """The time until it stops without a better epoch; a better one extends it."""
        assert self._first is not None
        _, number, began = self._first
        if epoch.number <= number:
            return ""
        seconds = (now - began) / (epoch.number - number) * (epoch.last - epoch.number)
        return f", at least {_duration(seconds)} left" if epoch.last > epoch.number else ""


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
