"""Writes plain Parquet with the standard library alone: a host that is sampled has no pyarrow.

Uncompressed, PLAIN, one page to a column of a row group; nulls by definition levels; text as UTF-8. What is held in
memory is one row group and some bytes of footer for each group already written.

A packed file is for large tables: bytes of equal weight are put together (BYTE_STREAM_SPLIT), and pages are compressed
by gzip, whose checksum also shows damage.
"""

from __future__ import annotations

import struct
import zlib
from array import array
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO, Dict, Iterable, List, Mapping, Sequence, Tuple, Union

from driple.contracts.formats.trace import Column

Cell = Union[int, float, str, None]

GROUP_ROWS = 8192

_MAGIC = b"PAR1"
_INT32, _INT64, _FLOAT, _DOUBLE, _BYTE_ARRAY = 1, 2, 4, 5, 6
_UTF8, _UINT_32, _UINT_64 = 0, 13, 14
_NOT_CONVERTED = -1
_PLAIN, _RLE, _BYTE_STREAM_SPLIT = 0, 3, 9
_NO_CODEC, _GZIP = 0, 2
_LEVEL, _GZIP_WINDOW = 6, 31

# Arrow type -> (physical type, converted type, array typecode; empty for text)
_TYPES: Dict[str, Tuple[int, int, str]] = {
    "int32": (_INT32, _NOT_CONVERTED, "i"),
    "int64": (_INT64, _NOT_CONVERTED, "q"),
    "uint32": (_INT32, _UINT_32, "I"),
    "uint64": (_INT64, _UINT_64, "Q"),
    "float32": (_FLOAT, _NOT_CONVERTED, "f"),
    "float64": (_DOUBLE, _NOT_CONVERTED, "d"),
    "string": (_BYTE_ARRAY, _UTF8, ""),
}
TYPECODES: Dict[str, str] = {name: code for name, (_, _, code) in _TYPES.items()}
"""Arrow type to the typecode of `array`, whose bytes (on any machine we run on) are those of the file."""

_ASCII_BITS = bytes.maketrans(b"\0\1", b"01")


@dataclass(frozen=True)
class Field:
    """A column of the file."""

    name: str
    type: str  # Arrow type, one of `TYPECODES`
    required: bool = False  # whether a null is an error

    @classmethod
    def of(cls, column: Column) -> Field:
        """The field of a declared column; its first time stamp is what makes a row a row, so that one is required."""
        return cls(column.name, column.type, column.name == "t_mono_ns")


class ParquetWriter:
    """Writes one file, group by group. The caller opens and closes the stream."""

    def __init__(self, stream: BinaryIO, fields: Sequence[Field], *, packed: bool = False) -> None:
        """A packed file has only numbers, and no nulls."""
        self._packed = packed
        self._stream = stream
        self._fields = tuple(fields)
        self._groups: List[bytes] = []
        self._rows = 0
        self._offset = 0
        self._put(_MAGIC)

    def write_group(self, columns: Sequence[Sequence[Cell]]) -> None:
        """Writes a row group; `columns` holds the values of each field in turn, all of one length."""
        rows = len(columns[0])
        if not rows:
            return
        start = self._offset
        chunks = [self._chunk(field, values) for field, values in zip(self._fields, columns)]
        group = _Struct().list(1, 12, chunks).i64(2, self._offset - start).i64(3, rows)
        self._groups.append(group.end())
        self._rows += rows

    def write_rows(self, rows: Iterable[Sequence[Cell]]) -> int:
        """Writes rows in groups; returns their number."""
        rest = iter(rows)
        while True:
            group = list(islice(rest, GROUP_ROWS))
            if not group:
                return self._rows
            self.write_group(list(zip(*group)))

    def close(self, metadata: Mapping[str, str]) -> None:
        """Writes the footer. Nothing can be read without it."""
        schema = [_Struct().text(4, "schema").i32(5, len(self._fields)).end()]
        for field in self._fields:
            physical, converted, _ = _TYPES[field.type]
            element = _Struct().i32(1, physical).i32(3, 0 if field.required else 1).text(4, field.name)
            if converted != _NOT_CONVERTED:
                element.i32(6, converted)
            schema.append(element.end())
        pairs = [_Struct().text(1, key).text(2, value).end() for key, value in metadata.items()]
        footer = _Struct().i32(1, 1).list(2, 12, schema).i64(3, self._rows).list(4, 12, self._groups)
        data = footer.list(5, 12, pairs).text(6, "driple").end()
        self._put(data + struct.pack("<I", len(data)) + _MAGIC)

    def _chunk(self, field: Field, values: Sequence[Cell]) -> bytes:
        """Writes a column of a group and gives its entry in the footer."""
        physical = _TYPES[field.type][0]
        levels = b"" if field.required else _definition_levels(values)
        page = levels + _plain(field, values)
        full, encoding, codec = len(page), _PLAIN, _NO_CODEC
        if self._packed:
            page, encoding, codec = _pack(page, full // len(values)), _BYTE_STREAM_SPLIT, _GZIP
        facts = _Struct().i32(1, len(values)).i32(2, encoding).i32(3, _RLE).i32(4, _RLE).end()
        header = _Struct().i32(1, 0).i32(2, full).i32(3, len(page)).struct(5, facts).end()
        at = self._offset
        self._put(header)
        self._put(page)
        full += len(header)
        size = len(header) + len(page)
        entry = _Struct().i32(1, physical).list(2, 5, [_zigzag(encoding), _zigzag(_RLE)])
        entry.list(3, 8, [_text(field.name)]).i32(4, codec).i64(5, len(values)).i64(6, full).i64(7, size).i64(9, at)
        return _Struct().i64(2, at).struct(3, entry.end()).end()

    def _put(self, data: bytes) -> None:
        self._stream.write(data)
        self._offset += len(data)


def _plain(field: Field, values: Sequence[Cell]) -> bytes:
    code = _TYPES[field.type][2]
    present: Sequence[Cell] = values if None not in values else [value for value in values if value is not None]
    if code:
        return array(code, present).tobytes()  # type: ignore[type-var]
    encoded = [str(value).encode("utf-8") for value in present]
    return b"".join(struct.pack("<I", len(text)) + text for text in encoded)


def _pack(values: bytes, width: int) -> bytes:
    """Bytes of equal weight together, compressed: those of high weight hardly change from value to value."""
    squeeze = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_WINDOW)
    return squeeze.compress(b"".join(values[i::width] for i in range(width))) + squeeze.flush()


def _definition_levels(values: Sequence[Cell]) -> bytes:
    """1 for a value, 0 for a null: one run where all are alike, else one bit each."""
    rows = len(values)
    nulls = values.count(None)
    if nulls in (0, rows):
        runs = _varint(rows << 1) + (b"\0" if nulls else b"\1")
    else:
        flags = bytes(value is not None for value in values)
        groups = (rows + 7) // 8
        # A text of binary digits to an int and to bytes: packs bits at the speed of C.
        bits = int(flags[::-1].translate(_ASCII_BITS), 2).to_bytes(groups, "little")
        runs = _varint(groups << 1 | 1) + bits
    return struct.pack("<I", len(runs)) + runs


class _Struct:
    """A struct in Thrift's compact protocol. Fields are given in the order of their numbers."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._last = 0

    def i32(self, number: int, value: int) -> _Struct:
        return self._field(number, 5, _zigzag(value))

    def i64(self, number: int, value: int) -> _Struct:
        return self._field(number, 6, _zigzag(value))

    def text(self, number: int, value: str) -> _Struct:
        return self._field(number, 8, _text(value))

    def struct(self, number: int, encoded: bytes) -> _Struct:
        return self._field(number, 12, encoded)

    def list(self, number: int, kind: int, encoded: Sequence[bytes]) -> _Struct:
        count = len(encoded)
        head = bytes([count << 4 | kind]) if count < 15 else bytes([0xF0 | kind]) + _varint(count)
        return self._field(number, 9, head + b"".join(encoded))

    def end(self) -> bytes:
        return bytes(self._data) + b"\0"

    def _field(self, number: int, kind: int, encoded: bytes) -> _Struct:
        self._data.append((number - self._last) << 4 | kind)
        self._data += encoded
        self._last = number
        return self


def _varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


def _zigzag(value: int) -> bytes:
    return _varint(value << 1 if value >= 0 else (-value << 1) - 1)


def _text(value: str) -> bytes:
    encoded = value.encode("utf-8")
    return _varint(len(encoded)) + encoded
