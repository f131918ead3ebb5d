"""Blocks of pcapng files: sections, interfaces, and packets with and without times."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from driple.pipeline.readers.file_window import FileWindow
from driple.pipeline.readers.frame_records import Records
from driple.pipeline.readers.record_chain import RecordLayout, heads, whole_records

MAGIC = b"\x0a\x0d\x0d\x0a"
_SECTION, _INTERFACE, _SIMPLE, _ENHANCED = 0x0A0D0D0A, 1, 3, 6
_LITTLE = b"\x4d\x3c\x2b\x1a"
_TIME_UNIT, _TIME_OFFSET = 9, 14  # options of an interface
_FRAME = {_ENHANCED: 28, _SIMPLE: 12}
"""Where in a block its frame begins."""
_SHORTEST, _LONGEST = 12, 1 << 22
_KIND_LOW = {"<": 0, ">": 3}
"""Where in a block the lowest byte of its kind is."""
_AROUND = 32  # bytes of a block of a packet that are not of its frame


class _Interface(NamedTuple):
    link_type: int
    to_ns: tuple[int, int]
    """Numerator and denominator of nanoseconds in a unit of its time stamps."""
    offset_ns: int


@dataclass
class _State:
    """What earlier blocks say of later ones."""

    order: str = "<"
    interfaces: list[_Interface] = field(default_factory=list)
    first: int = 0
    """Position of the section's first interface."""


class _Rows(NamedTuple):
    """Packets of several interfaces."""

    interface: Any
    ticks: Any
    at: Any
    captured: Any
    length: Any


def pcapng_records(window: FileWindow) -> Iterator[Records]:
    """The packets of a file, by interface. Raises ValueError for a time that no capture has."""
    state = _State()
    while len(window.data):
        if window.data[:4].tobytes() == MAGIC:
            state.order = "<" if window.data[8:12].tobytes() == _LITTLE else ">"
        begin, end = whole_records(window.data, _layout(state.order))
        words = heads(window.padded, begin, 8).view(f"{state.order}u4")
        kinds, sizes = words[:, 0], words[:, 1].astype(np.int64)
        start = 0
        for event in [*np.flatnonzero((kinds == _SECTION) | (kinds == _INTERFACE)).tolist(), len(begin)]:
            part = slice(start, event)
            rows, damaged_at = _packets(window, begin[part], kinds[part], sizes[part], state)
            yield from _by_interface(rows, state)
            if damaged_at is not None:
                window.advance(damaged_at)
                return
            if event < len(begin):
                _remember(window, int(begin[event]), int(sizes[event]), state)
            start = event + 1
        window.advance(end)
        if not end:
            return


def _layout(order: str) -> RecordLayout:
    def looks_right(head: Any) -> Any:
        size = head[:, 1]
        return (head[:, 0] == _ENHANCED) & (size >= _AROUND) & (size <= _LONGEST) & (size % 4 == 0)

    marks = tuple(enumerate(struct.pack(f"{order}I", _ENHANCED)))
    return RecordLayout(order, 4, 0, _SHORTEST, _SHORTEST, _LONGEST, 4, marks, _KIND_LOW[order], looks_right)


def _packets(window: FileWindow, begin: Any, kinds: Any, sizes: Any, state: _State) -> tuple[_Rows, int | None]:
    """The packets of some blocks, and where the first one is that cannot be; None if there is none."""
    some = kinds == _ENHANCED
    at = begin[some]
    words = heads(window.padded, at, _FRAME[_ENHANCED]).view(f"{state.order}u4").astype(np.int64)
    number = words[:, 2] + state.first
    right = (words[:, 5] <= sizes[some] - _AROUND) & (number < len(state.interfaces))
    count = len(at) if right.all() else int(np.argmin(right))
    damaged_at = int(at[count]) if count < len(at) else None
    ticks = words[:, 3] << 32 | words[:, 4]
    rows = _Rows(number, ticks, at + _FRAME[_ENHANCED], words[:, 5], words[:, 6])
    if damaged_at is not None:
        rows = _Rows(*(column[:count] for column in rows))
    simple = kinds == _SIMPLE
    if damaged_at is not None:
        simple &= begin < damaged_at
    if not simple.any():
        return rows, damaged_at
    at = begin[simple]
    length = heads(window.padded, at + 8, 4).view(f"{state.order}u4").ravel().astype(np.int64)
    nothing: Any = np.zeros(len(at), np.int64)
    captured = np.minimum(length, sizes[simple] - 16)
    more = _Rows(nothing + state.first, nothing, at + _FRAME[_SIMPLE], captured, length)
    both = [np.concatenate(columns) for columns in zip(rows, more, strict=True)]
    order = np.argsort(both[2], kind="stable")
    return _Rows(*(column[order] for column in both)), damaged_at


def _by_interface(rows: _Rows, state: _State) -> Iterator[Records]:
    for number, interface in enumerate(state.interfaces):
        own = rows.interface == number
        if not own.any():
            continue
        _, ticks, at, captured, length = rows if own.all() else (column[own] for column in rows)
        up, down = interface.to_ns
        whole, rest = ticks // down, ticks % down  # in two parts: the product can be beyond 64 bits
        if np.any(ticks < 0) or not 0 <= int(whole.max()) * up + interface.offset_ns < 2**62:
            raise ValueError("a time that no capture has")
        t_ns = whole * up + rest * up // down + interface.offset_ns
        yield Records(interface.link_type, at, captured, length, t_ns)


def _remember(window: FileWindow, at: int, size: int, state: _State) -> None:
    """The start of a section or the description of an interface."""
    block = window.data[at : at + size].tobytes()
    if block[:4] == MAGIC:
        state.first = len(state.interfaces)
    else:
        state.interfaces.append(_interface(block, state.order))


def _interface(block: bytes, order: str) -> _Interface:
    (link_type,) = struct.unpack_from(f"{order}H", block, 8)
    unit, offset_ns = (1000, 1), 0  # microseconds
    option, end = 16, len(block) - 4
    while option + 4 <= end:
        code, length = struct.unpack_from(f"{order}HH", block, option)
        if code == 0:
            break
        if code == _TIME_UNIT:
            exponent = block[option + 4]
            power = exponent & 0x7F
            unit = (1_000_000_000, 2**power) if exponent & 0x80 else _decimal(power)
        elif code == _TIME_OFFSET:
            offset_ns = struct.unpack_from(f"{order}q", block, option + 4)[0] * 1_000_000_000
        option += 4 + (length + 3) // 4 * 4
    return _Interface(link_type, unit, offset_ns)


def _decimal(power: int) -> tuple[int, int]:
    return (10 ** (9 - power), 1) if power <= 9 else (1, 10 ** (power - 9))
