"""A progress line on stderr."""

from __future__ import annotations

import sys
import time

REDRAW_S = 0.1


class ProgressLine:
    """Shows progress if stderr is a terminal."""

    def __init__(self) -> None:
        self._on = sys.stderr.isatty()
        self._next, self._drawn = 0.0, False

    def show(self, text: str, done: int, total: int) -> None:
        """Redraws the line, at most every REDRAW_S except at the end."""
        now = time.monotonic()
        if self._on and (now >= self._next or done == total):
            self._next, self._drawn = now + REDRAW_S, True
            print(f"\r{text}\x1b[K", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self._drawn:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
