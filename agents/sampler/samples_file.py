"""The append-only file of a running sampler: its format, and a reader that also handles files of killed samplers.

    "driple-samples 1\\n"
    one line of JSON: the streams with their tables and columns, and what was asked for
    blocks: head (marker, stream, rows, length, CRC-32), then the columns of some rows of one stream

A block is whole or it does not count: after one that is cut short or fails its checksum a reader goes on at the next
whole one, and where none follows the file ends.
Stream 255 holds notes: JSON that replaces the note before it (quality so far).
"""

from __future__ import annotations

import json
import os
import struct
import zlib
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Dict, Iterator, List, Optional, Sequence, Tuple

from driple.agents.sampler.parquet_writer import TYPECODES, Cell, Field
from driple.contracts.errors import BadInput

MAGIC = b"driple-samples 1\n"
NOTES = 255
MAX_STREAMS = 200

_HEAD = struct.Struct("<4sBxxxII")
_CHECKSUM = struct.Struct("<I")
_MARKER = b"blk:"
_CHUNK = 1 << 16
_ALL_NULL, _ALL_PRESENT, _MIXED = 0, 1, 2
# A length beyond this is damage and not a block: nothing here flushes more than about a second of rows.
_MAX_PAYLOAD = 1 << 28


@dataclass(frozen=True)
class Stream:
    """Rows that share their columns and come in the order of their times."""

    table: str  # `trace` or `flows`: the Parquet file in which its rows end
    fields: Tuple[Field, ...]  # the first is the time


@dataclass
class Refused:
    """Counts values that did not fit their column's type: they are stored as nulls, never clamped."""

    count: int = 0


def encode_header(streams: Sequence[Stream], about: Dict[str, Any]) -> bytes:
    """The start of the file."""
    plain = [{"table": s.table, "columns": [[f.name, f.type, f.required] for f in s.fields]} for s in streams]
    return MAGIC + json.dumps({"streams": plain, "about": about}).encode("ascii") + b"\n"


def encode_note(note: Dict[str, Any]) -> bytes:
    """A block that says something about the whole file."""
    return _block(NOTES, 0, json.dumps(note).encode("ascii"))


def encode_rows(
    number: int, fields: Sequence[Field], columns: Sequence[Sequence[Cell]], refused: Optional[Refused] = None
) -> bytes:
    """A block of rows of stream `number`, column by column."""
    parts = [_encode_column(field, values, refused) for field, values in zip(fields, columns)]
    return _block(number, len(columns[0]), b"".join(parts))


def encode_raw(number: int, rows: int, columns: Sequence[bytes]) -> bytes:
    """As `encode_rows`, of columns without nulls whose values are the bytes of an `array` of their type."""
    return _block(number, rows, b"".join(part for column in columns for part in (b"\1", column)))


def _block(number: int, rows: int, payload: bytes) -> bytes:
    head = _HEAD.pack(_MARKER, number, rows, len(payload))
    return head + _CHECKSUM.pack(_checksum(head, payload)) + payload


def _checksum(head: bytes, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(head))


def _encode_column(field: Field, values: Sequence[Cell], refused: Optional[Refused]) -> bytes:
    nulls = values.count(None)
    if nulls == len(values):
        return b"\0"
    present: Sequence[Cell] = values if not nulls else [value for value in values if value is not None]
    code = TYPECODES[field.type]
    if code:
        try:
            data = array(code, present).tobytes()  # type: ignore[type-var]
        except (OverflowError, TypeError):
            return _encode_column(field, _fitting(code, values, refused), refused)
    else:
        encoded = json.dumps(present).encode("ascii")
        data = struct.pack("<I", len(encoded)) + encoded
    if not nulls:
        return b"\1" + data
    return b"\2" + bytes(value is not None for value in values) + data


def _fitting(code: str, values: Sequence[Cell], refused: Optional[Refused]) -> List[Cell]:
    fitting: List[Cell] = []
    for value in values:
        try:
            if value is not None:
                array(code, [value])  # type: ignore[type-var]
            fitting.append(value)
        except (OverflowError, TypeError):
            fitting.append(None)
            if refused is not None:
                refused.count += 1
    return fitting


class SamplesFile:
    """Reads the whole blocks of a samples file."""

    def __init__(self, path: Path) -> None:
        """Raises BadInput for a file that is not there or is no samples file."""
        self.path = path
        try:
            with path.open("rb") as stream:
                self._read_header(stream)
                self._scan(stream)
        except OSError as error:
            raise BadInput(f"{path}: {error.strerror}") from None

    def blocks(self, number: int) -> Iterator[List[List[Cell]]]:
        """The columns of each block of a stream in turn. Holds one block in memory."""
        with self.path.open("rb") as stream:
            stream.seek(self._start)
            for damage, behind in (*self.damaged, (self.end, self.end)):
                while stream.tell() < damage:
                    _, owner, rows, length = _HEAD.unpack(stream.read(_HEAD.size))
                    stream.seek(_CHECKSUM.size, 1)
                    if owner == number:
                        yield _decode(self.streams[number].fields, rows, stream.read(length))
                    else:
                        stream.seek(length, 1)
                stream.seek(behind)

    def _read_header(self, stream: BinaryIO) -> None:
        if stream.read(len(MAGIC)) != MAGIC:
            raise BadInput(f"{self.path}: not a samples file of this version (expected {MAGIC.decode().strip()!r})")
        line = stream.readline()
        try:
            header = json.loads(line)
            self.streams = tuple(
                Stream(plain["table"], tuple(Field(*column) for column in plain["columns"]))
                for plain in header["streams"]
            )
            self.about: Dict[str, Any] = header["about"]  # what the sampler was asked for
        except (ValueError, KeyError, TypeError):
            raise BadInput(f"{self.path}: the header is cut short or damaged; nothing can be read") from None
        self._start = stream.tell()

    def _scan(self, stream: BinaryIO) -> None:
        self.note: Dict[str, Any] = {}  # the last one
        self.rows = [0] * len(self.streams)  # whole ones, by stream
        self.damaged: List[Tuple[int, int]] = []  # begin and end of damage between whole blocks; no torn tail
        self._until: Dict[int, Any] = {}
        # A sampler may be writing it: what is half there now and whole a moment later is no damage.
        size = os.fstat(stream.fileno()).st_size
        at = self.end = self._start  # `end` is that of the last whole block
        while at < size:
            length = self._take(stream, at, size)
            if not length:
                at = _next_marker(stream, at + 1, size)
                continue
            if at > self.end:
                self.damaged.append((self.end, at))
            at = self.end = at + length

    def _take(self, stream: BinaryIO, at: int, size: int) -> int:
        """Counts the block that begins at `at`. Returns its length in the file, 0 if there is no whole one."""
        stream.seek(at)
        head, checksum = stream.read(_HEAD.size), stream.read(_CHECKSUM.size)
        if len(checksum) < _CHECKSUM.size:
            return 0
        marker, number, rows, length = _HEAD.unpack(head)
        known = number == NOTES or number < len(self.streams)
        begin = stream.tell()
        if marker != _MARKER or not known or length > min(_MAX_PAYLOAD, size - begin):
            return 0
        if _CHECKSUM.pack(_checksum_of_next(stream, head, length)) != checksum:
            return 0
        stream.seek(begin)
        payload = stream.read(length)
        if number == NOTES:
            self.note = json.loads(payload)
        elif self._follows(number, rows, payload, after_damage=at > self.end or bool(self.damaged)):
            self.rows[number] += rows
        else:
            return 0
        return stream.tell() - at

    def _follows(self, number: int, rows: int, payload: bytes, after_damage: bool) -> bool:
        """Whether a block continues its stream. A disk that damages a file may also put old blocks in wrong places."""
        times: List[Any] = _decode(self.streams[number].fields[:1], rows, payload)[0]
        if times and after_damage and times[0] < self._until.get(number, times[0]):
            return False
        if times:
            self._until[number] = times[-1]
        return True


def _checksum_of_next(stream: BinaryIO, head: bytes, length: int) -> int:
    """Of a block whose payload comes next. In pieces, as a damaged length may be that of half the file."""
    checksum = zlib.crc32(head)
    while length > 0:
        piece = stream.read(min(length, _CHUNK))
        if not piece:
            break
        checksum = zlib.crc32(piece, checksum)
        length -= len(piece)
    return checksum


def _next_marker(stream: BinaryIO, at: int, size: int) -> int:
    """Where the next block may begin, from `at` on; `size` if nowhere."""
    while at < size:
        stream.seek(at)
        data = stream.read(_CHUNK)
        found = data.find(_MARKER)
        if found >= 0:
            return at + found
        if len(data) < _CHUNK:
            break
        at += len(data) - len(_MARKER) + 1
    return size


def _decode(fields: Sequence[Field], rows: int, payload: bytes) -> List[List[Cell]]:
    columns: List[List[Cell]] = []
    at = 0
    for field in fields:
        flag = payload[at]
        at += 1
        if flag == _ALL_NULL:
            columns.append([None] * rows)
            continue
        flags = b""
        if flag == _MIXED:
            flags = payload[at : at + rows]
            at += rows
        count = sum(flags) if flag == _MIXED else rows
        values, at = _decode_values(field, count, payload, at)
        if flag == _MIXED:
            following = iter(values)
            values = [next(following) if present else None for present in flags]
        columns.append(values)
    return columns


def _decode_values(field: Field, count: int, payload: bytes, at: int) -> Tuple[List[Cell], int]:
    code = TYPECODES[field.type]
    if not code:
        (length,) = struct.unpack_from("<I", payload, at)
        return json.loads(payload[at + 4 : at + 4 + length]), at + 4 + length
    numbers = array(code)
    size = count * numbers.itemsize
    numbers.frombytes(payload[at : at + size])
    return list(numbers), at + size
