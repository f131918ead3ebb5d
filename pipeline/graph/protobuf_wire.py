"""Protocol buffers in their binary form, as much as a GraphDef needs, with no library and no TensorFlow."""

from __future__ import annotations

from typing import Any

from driple.contracts.errors import BadInput
from driple.pipeline.graph.graphdef_fields import INT, TEXT, Kind, Message

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def parse(content: bytes, kind: Kind) -> Message:
    """The message in `content`.

    Raises:
        BadInput: cut short, or no such message.
    """
    return _message(content, 0, len(content), kind)


def _message(content: bytes, begin: int, end: int, kind: Kind) -> Message:
    found: Message = {}
    fields = kind.fields
    while begin < end:
        key, begin = _varint(content, begin, end)
        number, wire = key >> 3, key & 7
        value: Any = None
        after = begin
        if wire == _VARINT:
            value, after = _varint(content, begin, end)
        elif wire == _BYTES:
            length, begin = _varint(content, begin, end)
            after = begin + length
        elif wire == _FIXED64:
            after = begin + 8
        elif wire == _FIXED32:
            after = begin + 4
        else:
            raise BadInput(f"no {kind.name}: field {number} has wire type {wire}")
        if after > end or not number:
            raise BadInput(f"cut short inside a {kind.name}" if number else f"no {kind.name}: a field numbered 0")
        if number in fields:
            name, what = fields[number]
            found.setdefault(name, []).extend(_values(content, begin, after, wire, value, kind, name, what))
        begin = after
    return found


def _values(
    content: bytes, begin: int, end: int, wire: int, value: int | None, kind: Kind, name: str, what: str | Kind
) -> list[Any]:
    if what == INT:
        if wire == _VARINT and value is not None:
            return [_signed(value)]
        if wire == _BYTES:  # packed
            values = []
            while begin < end:
                item, begin = _varint(content, begin, end)
                values.append(_signed(item))
            return values
    elif wire == _BYTES:
        if isinstance(what, Kind):
            return [_message(content, begin, end, what)]
        if what != TEXT:
            return [content[begin:end]]
        try:
            return [content[begin:end].decode("utf-8")]
        except UnicodeDecodeError:
            raise BadInput(f"no {kind.name}: its {name} is not text") from None
    raise BadInput(f"no {kind.name}: its {name} has wire type {wire}")


def _varint(content: bytes, begin: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if begin >= end:
            raise BadInput("cut short inside a number")
        byte = content[begin]
        begin += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, begin
        shift += 7
        if shift > 63:
            raise BadInput("a number of more than 64 bits")


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
