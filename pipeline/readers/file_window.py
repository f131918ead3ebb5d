"""FileWindow: the part of a file that is in memory. One buffer is used again: new memory costs more than reading."""

from __future__ import annotations

from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

WINDOW_BYTES = 8 << 20
"""Much longer than any record, and short enough for the cache of a processor."""


class FileWindow:
    """Moves over a file from its beginning to its end."""

    def __init__(self, stream: BinaryIO, padding: int) -> None:
        self._stream = stream
        self._memory: NDArray[np.uint8] = np.zeros(WINDOW_BYTES + padding, np.uint8)
        self._padding = padding
        self._end = 0
        self.at_end = False
        """Whether the last byte of the file is in the window."""
        self.advance(0)

    @property
    def data(self) -> NDArray[np.uint8]:
        """The bytes of the window. They change with `advance`."""
        return self._memory[: self._end]

    @property
    def padded(self) -> NDArray[np.uint8]:
        """The same, with some more bytes of any value."""
        return self._memory[: self._end + self._padding]

    def advance(self, used: int) -> None:
        """Leaves out the first bytes and reads on behind the others."""
        rest = self._end - used
        self._memory[:rest] = self._memory[used : self._end].copy()
        self._end = rest
        free = memoryview(self._memory)[:WINDOW_BYTES]
        while self._end < WINDOW_BYTES and not self.at_end:
            count = self._stream.readinto(free[self._end :])  # type: ignore[attr-defined]
            self._end += count
            self.at_end = not count
