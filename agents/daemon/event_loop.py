"""Event loop: one thread that waits for descriptors and timers and calls their handlers. It never polls."""

from __future__ import annotations

import heapq
import itertools
import selectors
import time
from typing import Callable, List, Optional, Tuple

READ = selectors.EVENT_READ
WRITE = selectors.EVENT_WRITE

Call = Callable[[], None]

_MANY = 64


class Timer:
    """A scheduled call; `cancel` may be called at any time, also afterwards."""

    def __init__(self, call: Call) -> None:
        self.call: Optional[Call] = call

    def cancel(self) -> None:
        self.call = None


class Loop:
    """Descriptors and timers. A descriptor is watched for one kind of event at a time."""

    def __init__(self) -> None:
        # poll, because epoll refuses regular files, and stdin may be one.
        self._selector = selectors.PollSelector()
        self._timers: List[Tuple[float, int, Timer]] = []
        self._numbers = itertools.count()
        self._many = _MANY

    def watch(self, fd: int, events: int, call: Call) -> None:
        """Calls whenever the descriptor is ready; replaces an earlier watch of it."""
        self.forget(fd)
        self._selector.register(fd, events, call)

    def forget(self, fd: int) -> None:
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def after(self, seconds: float, call: Call) -> Timer:
        timer = Timer(call)
        if len(self._timers) >= self._many:  # else time limits of ended processes would stay for a day
            self._timers = [entry for entry in self._timers if entry[2].call is not None]
            heapq.heapify(self._timers)
            self._many = max(_MANY, 2 * len(self._timers))
        heapq.heappush(self._timers, (time.monotonic() + seconds, next(self._numbers), timer))
        return timer

    def turn(self, patience_s: Optional[float] = None) -> None:
        """Waits for the next event, at most that long, and makes all calls that are due.

        Descriptors come before timers: after a long pause of this process, input that arrived meanwhile is read before
        a timer declares the controller gone.
        """
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        wait_s = patience_s
        if self._timers:
            next_s = max(0.0, self._timers[0][0] - time.monotonic())
            wait_s = next_s if wait_s is None else min(wait_s, next_s)
        for key, _ in self._selector.select(wait_s):
            # An earlier call may have removed it, and its number may even be another file by now.
            if self._selector.get_map().get(key.fd) is key:
                key.data()
        now = time.monotonic()
        due = []
        while self._timers and self._timers[0][0] <= now:
            due.append(heapq.heappop(self._timers)[2])
        for timer in due:
            call, timer.call = timer.call, None
            if call is not None:
                call()

    def close(self) -> None:
        self._selector.close()
