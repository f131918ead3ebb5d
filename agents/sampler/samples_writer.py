"""Writer: rows go into an append-only file at least once a second, and into Parquet when all is done.

Nothing is synced to the platter: what `write` has handed to the kernel outlives a killed sampler, and waiting for a
disk would cost ticks. Blocks are small, so that encoding one takes less than a tick at 1000 Hz.
"""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List, Sequence

from driple.agents.sampler.parquet_writer import Cell
from driple.agents.sampler.samples_file import (
    MAX_STREAMS,
    Refused,
    SamplesFile,
    Stream,
    encode_header,
    encode_note,
    encode_raw,
    encode_rows,
)
from driple.contracts.errors import BadInput

BLOCK_ROWS = 96
FLOWS = ".flows"
FLUSH_NS = 800_000_000
# The longest name that is made beside `x.parquet`: `.x.flows.parquet.<32 digits>.partial`, while it is sealed.
_LONGER = len(".") + len(".flows") + len(".partial") + 33


class DiskFull(BadInput):
    """The file could not be extended. What was written before is intact."""


def samples_path(out: Path) -> Path:
    """The append-only file that grows beside `out` until it is sealed."""
    return out.with_name(out.name + ".samples")


def check_out(out: Path) -> None:
    """Raises BadInput for a path where a trace cannot be written, or where an unsealed one still is."""
    try:
        _check_out(out)
    except OSError as error:
        raise BadInput(f"--out {out}: {error.strerror}") from None


def _check_out(out: Path) -> None:
    if out.exists() and not stat.S_ISREG(out.stat().st_mode):
        raise BadInput(f"--out {out}: expected a file, and this is a folder or a device")
    if not out.name or not out.parent.is_dir():
        raise BadInput(f"--out {out}: no such folder: {out.parent}")
    if out.stem.endswith(FLOWS):
        raise BadInput(
            f"--out {out}: what ends in {FLOWS}{out.suffix} is the flows of another trace; choose another name"
        )
    longest = os.pathconf(out.parent, "PC_NAME_MAX") - _LONGER
    if len(os.fsencode(out.name)) > longest:
        raise BadInput(f"--out {out}: too long a name; expected at most {longest} bytes, as names beside it are longer")
    with suppress(FileNotFoundError):
        fd = os.open(samples_path(out), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            _check_leftover(fd, out)
        finally:
            os.close(fd)


def _check_leftover(fd: int, out: Path) -> None:
    """Locks an open samples file that is there already; refuses one that is in use or that has something to keep."""
    path = samples_path(out)
    if not lock(fd):
        raise BadInput(f"--out {out}: another sampler is writing {path}; stop it, or give another --out")
    if os.fstat(fd).st_size and not _nothing_in(path):
        raise BadInput(
            f"--out {out}: {path} was left by a sampler that was killed; "
            f"seal it with driple-sample --seal {path}, or remove it"
        )


def _nothing_in(samples: Path) -> bool:
    """Whether a sampler that was killed before its first row left this."""
    with suppress(BadInput):
        return not any(SamplesFile(samples).rows)
    return False  # no samples file at all, or damaged: not ours to throw away


def _is_at(fd: int, path: Path) -> bool:
    """Whether an open file still has its name: the previous owner of the lock may have removed it."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(fd), path.stat())
    return False


def lock(fd: int) -> bool:
    """Takes the lock that a sampler holds on its file while it lives; False if another has it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks: better unprotected than unusable
    return True


class SampleWriter:
    """Appends rows of several streams to a samples file. Its memory does not depend on how long it runs."""

    def __init__(self, out: Path, streams: Sequence[Stream], about: Dict[str, Any]) -> None:
        """Makes the file. Raises BadInput if the place cannot be used."""
        if len(streams) > MAX_STREAMS:
            raise BadInput(f"{len(streams)} sources: expected at most {MAX_STREAMS}")
        check_out(out)
        self.path = samples_path(out)
        self.refused = Refused()
        self.written = 0
        self._streams = tuple(streams)
        self._pending: List[bytes] = []
        try:
            self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        except OSError as error:
            raise BadInput(f"--out {out}: {error.strerror}: {self.path}") from None
        try:
            # Of two samplers started on one trace, one must lose and say so: the lock decides, not who made the file.
            _check_leftover(self._fd, out)
            if not _is_at(self._fd, self.path):
                raise BadInput(f"--out {out}: another sampler has just ended and removed {self.path}; try again")
            os.ftruncate(self._fd, 0)
        except BadInput:
            self.close()
            raise
        self._pending.append(encode_header(streams, about))
        try:
            self.flush()
        except DiskFull:
            self._header = 0
            self.discard_if_empty()
            raise
        self._header = self.written

    def add(self, number: int, columns: Sequence[Sequence[Cell]]) -> None:
        if columns and len(columns[0]):
            self._pending.append(encode_rows(number, self._streams[number].fields, columns, self.refused))

    def add_raw(self, number: int, rows: int, columns: Sequence[bytes]) -> None:
        """As `add`, of columns that are bytes already."""
        self._pending.append(encode_raw(number, rows, columns))

    def note(self, note: Dict[str, Any]) -> None:
        """Adds a note about the trace so far; replaces the previous note."""
        self._pending.append(encode_note(note))

    def flush(self) -> None:
        """Hands everything to the kernel. Raises DiskFull; the file then ends after its last whole block."""
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
        if self._fd >= 0 and self.empty:  # while it is locked: it is ours
            with suppress(FileNotFoundError):
                self.path.unlink()
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
