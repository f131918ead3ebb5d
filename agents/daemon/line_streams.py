"""Lines over descriptors: input is cut to a length, output is queued up to a limit. Neither side can block us."""

from __future__ import annotations

import os
import select
from collections import deque
from typing import Callable, Deque, List, NamedTuple, Optional

from driple.agents.daemon.event_loop import WRITE, Loop

CHUNK = 65536


class Line(NamedTuple):
    """A line without its end."""

    text: bytes
    cut: bool  # whether it was too long and is truncated


class LineBuffer:
    """Splits chunks into lines. Keeps at most one line, and of that no more than the limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> List[Line]:
        """The lines that this chunk completes. A line that is too long is returned once, as soon as it is."""
        lines: List[Line] = []
        *whole, rest = data.split(b"\n")
        for part in whole:
            self._hold(part, lines)
            if not self._skipping:
                lines.append(Line(bytes(self._held), False))
            self._held.clear()
            self._skipping = False
        self._hold(rest, lines)
        return lines

    def rest(self) -> List[Line]:
        held, self._held = bytes(self._held), bytearray()
        return [Line(held, False)] if held else []

    def _hold(self, part: bytes, lines: List[Line]) -> None:
        if self._skipping:
            return
        self._held += part
        if len(self._held) > self._limit:
            lines.append(Line(bytes(self._held[: self._limit]), True))
            self._held.clear()
            self._skipping = True


class OutputQueue:
    """Writes without blocking: data that the reader does not take is queued, up to a limit.

    The descriptor stays blocking, as others may share it: a pipe that is ready takes PIPE_BUF without blocking.
    """

    def __init__(self, loop: Loop, fd: int, limit: int, lost: Callable[[Optional[OSError]], None]) -> None:
        """`lost` is called once: with the error if the reader is gone, or with None if the limit is exceeded."""
        self.waiting = 0
        self._loop = loop
        self._fd = fd
        self._limit = limit
        self._lost = lost
        self.open = True
        self._queue: Deque[memoryview] = deque()
        self._poll = select.poll()
        self._poll.register(fd, select.POLLOUT)

    def put(self, data: bytes) -> None:
        """Writes as much as the reader has room for, and the rest later."""
        if not self.open or not data:
            return
        self._queue.append(memoryview(data))
        self.waiting += len(data)
        if len(self._queue) == 1:
            self._flush()
        if self.waiting > self._limit:
            self._fail(None)

    def close(self) -> None:
        """Discards the queue. The owner closes the descriptor."""
        self.open = False
        self._queue.clear()
        self.waiting = 0
        self._loop.forget(self._fd)

    def _flush(self) -> None:
        try:
            while self._queue and self._poll.poll(0):
                head = self._queue[0]
                written = os.write(self._fd, head[: select.PIPE_BUF])
                self.waiting -= written
                if written < len(head):
                    self._queue[0] = head[written:]
                else:
                    self._queue.popleft()
        except OSError as error:  # EPIPE; EIO for a terminal
            self._fail(error)
            return
        if self._queue:
            self._loop.watch(self._fd, WRITE, self._flush)
        else:
            self._loop.forget(self._fd)

    def _fail(self, error: Optional[OSError]) -> None:
        if self.open:
            self.close()
            self._lost(error)
