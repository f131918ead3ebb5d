"""Relays the stdout of a process to the controller line by line, up to a rate. Dropped lines are reported."""

from __future__ import annotations

import os
import time
from typing import Callable, Optional

from driple.agents.daemon.event_loop import READ, Loop
from driple.agents.daemon.line_streams import CHUNK, Line, LineBuffer

LINE_LIMIT = 1_000_000
WINDOW_S = 1.0
# Limits of what is relayed in a window. A fork server writes a few lines per run.
WINDOW_LINES = 1000
WINDOW_BYTES = 2_000_000
# Dropped lines are still read, so that their writer goes on, but no faster than this: it would take a core.
WINDOW_READ = 8_000_000

Said = Callable[[str, bool], bool]


class Relay:
    """Reads a process's stdout until it ends."""

    def __init__(self, loop: Loop, fd: int, said: Said, trouble: Callable[[str], None]) -> None:
        """`said` takes a line and whether it was truncated. It returns False if there is no room for the line."""
        self._loop = loop
        self._fd = fd
        self._said = said
        self._trouble = trouble
        self._lines = LineBuffer(LINE_LIMIT)
        self._window_s = 0.0
        self._passed_lines = self._passed_bytes = self._read = self._dropped = 0
        os.set_blocking(fd, False)
        loop.watch(fd, READ, self._ready)

    def finish(self) -> None:
        """Relays what is left in the pipe, and closes it."""
        if self._fd < 0:
            return
        end = self._read + LINE_LIMIT  # more than a pipe holds; another process may still write to it
        while self._read < end:
            data = self._chunk()
            if not data:  # its end, or a descendant holds it open
                break
            self._take(data)
        self._close()

    def _ready(self) -> None:
        now = time.monotonic()
        if now >= self._window_s + WINDOW_S and not self._dropped:
            self._window_s = now
            self._passed_lines = self._passed_bytes = self._read = 0
        data = self._chunk()
        if data == b"":
            self._close()
        elif data:
            self._take(data)

    def _chunk(self) -> Optional[bytes]:
        try:
            return os.read(self._fd, CHUNK)
        except BlockingIOError:
            return None

    def _take(self, data: bytes) -> None:
        self._read += len(data)
        for line in self._lines.feed(data):
            self._pass(line)
        if self._read >= WINDOW_READ:
            self._loop.forget(self._fd)
            if not self._dropped:  # long lines, few of them dropped: the next window must begin too
                self._loop.after(WINDOW_S, self._report)

    def _pass(self, line: Line) -> None:
        room = self._passed_lines < WINDOW_LINES and self._passed_bytes < WINDOW_BYTES
        if room and self._said(line.text.decode("utf-8", "replace"), line.cut):
            self._passed_lines += 1
            self._passed_bytes += len(line.text)
            return
        if not self._dropped:
            self._loop.after(WINDOW_S, self._report)
        self._dropped += 1

    def _report(self) -> None:
        if self._dropped:
            self._trouble(f"wrote too much in a second: {self._dropped} lines were dropped")
        self._window_s = time.monotonic()
        self._passed_lines = self._passed_bytes = self._read = self._dropped = 0
        if self._fd >= 0:
            self._loop.watch(self._fd, READ, self._ready)

    def _close(self) -> None:
        for line in self._lines.rest():
            self._pass(line)
        self._loop.forget(self._fd)
        os.close(self._fd)
        self._fd = -1
        if self._dropped:
            self._report()
