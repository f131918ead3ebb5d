"""Streams: lines from pieces, and the last bytes."""

from __future__ import annotations

from driple.contracts.errors import HostError

MAX_LINE = 16 * 1024 * 1024  # a longer line is an error of the remote program, and must not fill the memory


class Lines:
    """Pieces of a stream in, whole lines out."""

    def __init__(self) -> None:
        self._pending = bytearray()
        self._searched = 0

    def feed(self, piece: bytes) -> None:
        self._pending += piece

    def pop(self) -> str | None:
        """The next complete line, if there is one. Raises HostError if the line is too long."""
        # Only new bytes are searched, so that a line of megabytes in many pieces takes linear time.
        end = self._pending.find(b"\n", self._searched)
        if (len(self._pending) if end < 0 else end) > MAX_LINE:
            raise HostError(f"a line of more than {MAX_LINE >> 20} MB")
        if end < 0:
            self._searched = len(self._pending)
            return None
        line = self._pending[:end].decode("utf-8", "replace")
        del self._pending[: end + 1]
        self._searched = 0
        return line

    def rest(self) -> str | None:
        """At the end of the stream: an unterminated last line, if there is one."""
        line = self._pending.decode("utf-8", "replace")
        self._pending.clear()
        self._searched = 0
        return line or None


class Tail:
    """The last bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._kept = bytearray()

    def feed(self, piece: bytes) -> None:
        self._kept += piece
        if len(self._kept) > 2 * self._limit:  # not for every piece
            del self._kept[: -self._limit]

    def content(self) -> bytes:
        return bytes(self._kept[-self._limit :])
