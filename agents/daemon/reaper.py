"""Reaper: reports the exit codes of children, and reaps adopted orphans."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from typing import Callable, Dict

from driple.agents.daemon.event_loop import READ, Loop
from driple.agents.daemon.procfs import adopt_orphans


class Reaper:
    """The only place that waits for children. Any signal with a handler also wakes the loop."""

    def __init__(self, loop: Loop) -> None:
        adopt_orphans()
        self._waiting: Dict[int, Callable[[int], None]] = {}
        self._wake, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler, so that the wake-up is written
        loop.watch(self._wake, READ, self._woken)

    def expect(self, pid: int, call: Callable[[int], None]) -> None:
        """Calls with the exit code when this child has ended; it is negative for a signal."""
        self._waiting[pid] = call

    def _woken(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._wake, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            call = self._waiting.pop(pid, None)
            if call is not None:
                call(-os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status))
