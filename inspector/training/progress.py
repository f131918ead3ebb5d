"""What is seen of a training while it runs: a bar on a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from driple.inspector.training.train_network import Epoch

BAR = 24
REDRAW_S = 0.1
LINE_S = 10.0


class Progress:
    """On stderr, so that stdout has the result alone."""

    def __init__(self, networks: int = 1, title: str = "") -> None:
        self._terminal = sys.stderr.isatty()
        self._networks = networks
        self._title = f"{title} " if title else ""
        self._next = 0.0
        self._first: tuple[int, int, float] | None = None
        self._drawn = False

    def __call__(self, member: int, epoch: Epoch) -> None:
        """One more epoch."""
        now = time.monotonic()
        if self._first is None or self._first[0] != member:
            self._first = (member, epoch.number, now)
        last = epoch.number >= epoch.last
        if now < self._next and not last:
            return
        text = self._text(member, epoch, now)
        if self._terminal:
            self._next = now + REDRAW_S
            filled = BAR * epoch.number // max(1, epoch.last)
            print(f"\r[{'#' * filled:<{BAR}}] {text}\x1b[K", end="", file=sys.stderr, flush=True)
            self._drawn = True
        else:
            self._next = now + LINE_S
            print(text, file=sys.stderr, flush=True)

    def clear(self) -> None:
        """Takes the bar away."""
        if self._drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
            self._drawn = False

    def say(self, line: str) -> None:
        """A line that stays."""
        self.clear()
        print(line, file=sys.stderr, flush=True)

    def _text(self, member: int, epoch: Epoch, now: float) -> str:
        which = f"network {member + 1}/{self._networks}, " if self._networks > 1 else ""
        return (
            f"{self._title}{which}epoch {epoch.number}, validation NRMSE {100 * epoch.row['val_nrmse']:.2f} %, "
            f"best {100 * epoch.best_nrmse:.2f} % at {epoch.best_epoch}{self._left(epoch, now)}"
        )

    def _left(self, epoch: Epoch, now: float) -> str:
        """How long it takes if it does not get better: a better epoch gives it more time."""
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
