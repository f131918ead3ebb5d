"""Ctrl-C that waits until what takes a moment, and must be whole, is done."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class DeferredInterrupt:
    """While it is entered, Ctrl-C is noted and not raised.

    with DeferredInterrupt() as ctrl_c:
        write()
    if ctrl_c.came:
        ...
    """

    def __init__(self) -> None:
        self.came = False
        self._before = signal.getsignal(signal.SIGINT)
        # Python hears signals in the main thread alone; who does not hear Ctrl-C, as under nohup, goes on so.
        self._hears = threading.current_thread() is threading.main_thread() and callable(self._before)

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
