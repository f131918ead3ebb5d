"""Defers Ctrl-C while something short is written that must be complete."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class DeferredInterrupt:
    """While entered, Ctrl-C is recorded and not raised.

    with DeferredInterrupt() as ctrl_c:
        write()
    if ctrl_c.came:
        ...

    Only where a command enabled it: a library installs no signal handlers.
    """

    enabled = False

    def __init__(self) -> None:
        self.came = False
        self._before = signal.getsignal(signal.SIGINT)
        # Python handles signals in the main thread only; a process that ignores Ctrl-C, as under nohup, continues to.
        self._hears = self.enabled and threading.current_thread() is threading.main_thread() and callable(self._before)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came = True

    def __enter__(self) -> DeferredInterrupt:
        if self._hears:
            signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if self._hears:
            signal.signal(signal.SIGINT, self._before)
