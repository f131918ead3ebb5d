"""Writer: rows go into an append-only file at least once a second, and into Parquet when all is done.

Nothing is synced to the platter: what `write` has handed to the kernel outlives a killed sampler, and waiting for a
disk would cost ticks. Blocks are small, so that encoding one takes less than a tick at 1000 Hz.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List, Sequence

from driple.agents.parquet import Cell
from driple.agents.samples import MAX_STREAMS, Refused, Stream, encode_header, encode_note, encode_rows
from driple.contracts.errors import BadInput

BLOCK_ROWS = 96
FLUSH_NS = 800_000_000


class DiskFull(BadInput):
    """The file could not be extended. What was written before is whole and kept."""


def samples_path(out: Path) -> Path:
    """The append-only file that grows beside `out` until it is sealed."""
    return out.with_name(out.name + ".samples")


def check_out(out: Path) -> None:
    """Refuses a place where a trace cannot be left.

    Raises:
        BadInput: no such folder, not writable, not a plain file, or an unsealed trace is still there.
    """
    if out.exists() and not stat.S_ISREG(out.stat().st_mode):
        raise BadInput(f"--out {out}: expected a file, and this is a folder or a device")
    if not out.name or not out.parent.is_dir():
        raise BadInput(f"--out {out}: no such folder: {out.parent}")
    leftover = samples_path(out)
    if leftover.exists():
        raise BadInput(
            f"--out {out}: {leftover} was left by a sampler that was killed or still runs; "
            f"seal it with driple-sample --seal {leftover}, or remove it"
        )


class SampleWriter:
    """Appends rows of several streams to a samples file. Its memory does not depend on how long it runs."""

    def __init__(self, out: Path, streams: Sequence[Stream], about: Dict[str, Any]) -> None:
        """Makes the file.

        Raises:
            BadInput: the place cannot be used.
        """
        if len(streams) > MAX_STREAMS:
            raise BadInput(f"{len(streams)} sources: expected at most {MAX_STREAMS}")
        check_out(out)
        self.path = samples_path(out)
        self.refused = Refused()
        self.written = 0
        self._streams = tuple(streams)
        self._pending: List[bytes] = []
        try:
            # O_EXCL: of two samplers started on one trace, one must lose and say so.
            self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise BadInput(f"--out {out}: {error.strerror}: {self.path}") from None
        self._pending.append(encode_header(streams, about))
        try:
            self.flush()
        except DiskFull:
            self._header = 0
            self.discard_if_empty()
            raise
        self._header = self.written

    def add(self, number: int, columns: Sequence[Sequence[Cell]]) -> None:
        """Takes the columns of some rows of a stream; `flush` writes them."""
        if columns and len(columns[0]):
            self._pending.append(encode_rows(number, self._streams[number].fields, columns, self.refused))

    def note(self, note: Dict[str, Any]) -> None:
        """Takes what is known about the whole so far; replaces the note before."""
        self._pending.append(encode_note(note))

    def flush(self) -> None:
        """Hands everything to the kernel.

        Raises:
            DiskFull: nothing more fits. The file then ends after its last whole block.
        """
        data = b"".join(self._pending)
        self._pending.clear()
        view = memoryview(data)
        start = self.written
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            os.ftruncate(self._fd, start)
            raise DiskFull(f"{self.path}: {error.strerror}") from None
        self.written = start + len(data)

    @property
    def empty(self) -> bool:
        """Whether nothing was ever sampled into it."""
        return self.written <= self._header

    def discard_if_empty(self) -> None:
        """Closes the file, and removes it if it is empty: that is nothing to keep."""
        self.close()
        if self.empty:
            with suppress(FileNotFoundError):
                self.path.unlink()

    def close(self) -> None:
        """Closes the file; safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
