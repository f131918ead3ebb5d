"""Finds the records of a file in which the length of each record leads to the next.

One record after the other is slow. Here many parts of the file are followed at once: the first record of each part is
guessed by what its header must look like, and a guess counts only if the part before it leads exactly there. The result
is the same as that of one record after the other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bytes: TypeAlias = NDArray[np.uint8]

_HEAD_BYTES = 16  # what is looked at to guess
_SAMPLE = 64  # records that are followed one by one, to know about how long they are
_RECORDS = 64  # of a part, about: fewer do not pay for the guess
_FEWEST_PARTS, _MOST_PARTS = 64, 1024  # a step of few parts costs as much as one of many
_STEPS = 16  # steps of all parts between two looks at whether they are done
_MOST_MORE = 4  # times the steps of half of the parts: those that are not done then go on one by one
_HOPS = 3  # records in a row that must look right where a part is guessed to begin


class RecordLayout(NamedTuple):
    """How records say their lengths, and what their headers look like."""

    order: str
    """Byte order: `<` or `>`."""
    length_at: int
    """Where in a record its length is."""
    beyond: int
    """What the length leaves out of the record."""
    head: int
    """Bytes that every record has."""
    shortest: int
    """Least value of the length."""
    longest: int
    """A larger length is damage."""
    unit: int
    """The length is a multiple of this."""
    marks: tuple[tuple[int, int], ...]
    """Bytes that nearly all headers have: places and values."""
    not_zero: int
    """Place of a byte that seldom is 0. Most of what looks like a header, but is none, is a run of zeros."""
    looks_right: Callable[[Any], Any]
    """Whether headers, as rows of four numbers of 32 bits, are plausible: a guess."""


def whole_records(data: Bytes, layout: RecordLayout) -> tuple[NDArray[np.int64], int]:
    """Where the whole records begin, from the first byte on, and where the last of them ends.

    The end of the data, or a length that cannot be, ends the records.
    """
    first, at = _one_by_one(data, 0, layout, most=_SAMPLE)
    begins: Any = np.array(first, np.int64)
    if len(first) == _SAMPLE:
        sizes = np.diff(begins)
        parts = min(_MOST_PARTS, int((len(data) - at) / (float(sizes.mean()) * _RECORDS)))
        if parts < _FEWEST_PARTS:
            rest: Any = np.array(_one_by_one(data, at, layout)[0], np.int64)
        else:
            rest = _together(data, np.r_[at, _guesses(data, at, parts, 2 * int(sizes.max()), layout)], layout)
        begins = np.concatenate([begins, rest])
    return _up_to_damage(data, begins, layout)


def heads(data: Bytes, at: Any, size: int) -> Bytes:
    """Bytes from each of many places on, as rows. All must be inside the data."""
    return np.ascontiguousarray(_places(data, size)[at]).view(np.uint8).reshape(-1, size)


def _places(data: Bytes, size: int) -> Any:
    """The bytes from each place on as one value."""
    return np.ndarray((max(0, len(data) - size + 1),), f"V{size}", data, strides=(1,))


def _lengths(data: Bytes, begins: Any, layout: RecordLayout) -> Any:
    return heads(data, begins + layout.length_at, 4).view(f"{layout.order}u4").ravel()


def _up_to_damage(data: Bytes, begins: Any, layout: RecordLayout) -> tuple[NDArray[np.int64], int]:
    lengths = _lengths(data, begins, layout).astype(np.int64)
    ends = begins + lengths + layout.beyond
    right = (lengths >= layout.shortest) & (lengths <= layout.longest) & (ends <= len(data))
    if layout.unit > 1:
        right &= lengths % layout.unit == 0
    count = len(begins) if right.all() else int(np.argmin(right))
    return begins[:count], int(ends[count - 1]) if count else 0


def _one_by_one(
    data: Bytes, at: int, layout: RecordLayout, most: int | None = None, stop: frozenset[int] = frozenset()
) -> tuple[list[int], int]:
    """Where records begin from a place on, and the place behind them: damage, the end, or a place in `stop`."""
    raw = memoryview(data)
    length_of = struct.Struct(f"{layout.order}I").unpack_from
    length_at, beyond, shortest, longest = layout.length_at, layout.beyond, layout.shortest, layout.longest
    last = len(data) - layout.head
    found: list[int] = []
    while at <= last and at not in stop and len(found) != most:
        length = length_of(raw, at + length_at)[0]
        if not shortest <= length <= longest:
            break
        found.append(at)
        at += length + beyond
    return found, at


def _guesses(data: Bytes, start: int, parts: int, reach: int, layout: RecordLayout) -> Any:
    """Where the first record of each further part probably begins; a part without such a place is left out."""
    borders = np.linspace(start, len(data), parts, endpoint=False).astype(np.int64)[1:]
    borders = borders[borders + reach + _HEAD_BYTES <= len(data)]
    near = np.lib.stride_tricks.sliding_window_view(data, reach + _HEAD_BYTES)[borders]
    maybe = near[:, layout.not_zero : layout.not_zero + reach] != 0
    for place, value in layout.marks:
        maybe &= near[:, place : place + reach] == value
    part, offset = np.nonzero(maybe)
    at = borders[part] + offset
    step = at
    for _ in range(_HOPS):
        inside = step <= len(data) - _HEAD_BYTES
        head = heads(data, np.where(inside, step, 0), _HEAD_BYTES).view(f"{layout.order}u4")
        right = ~inside | layout.looks_right(head)
        step = step + head[:, layout.length_at // 4].astype(np.int64) + layout.beyond
        part, at, step = part[right], at[right], step[right]
    return at[np.unique(part, return_index=True)[1]]


def _together(data: Bytes, begins: Any, layout: RecordLayout) -> Any:
    """All records from the first of `begins` on; the others are guesses."""
    limits = np.r_[begins[1:], len(data) - layout.head + 1]
    steps = _steps(data, begins, limits, layout)
    inside = steps < limits
    arrived = steps[np.minimum(inside.sum(axis=0), len(steps) - 1), np.arange(len(begins))]
    # The last part ends with what is not a record.
    astray = np.flatnonzero(np.r_[arrived[:-1] != begins[1:], arrived[-1] < limits[-1]]).tolist()
    known = frozenset(begins.tolist())
    found, part = [], 0
    for last in astray:
        if last < part:
            continue
        found.append(steps[:, part : last + 1].T[inside[:, part : last + 1].T])
        between, at = _one_by_one(data, int(arrived[last]), layout, stop=known)
        found.append(np.array(between, np.int64))
        if at not in known:
            return np.concatenate(found)
        part = int(np.searchsorted(begins, at))
    return np.concatenate([*found, steps[:, part:].T[inside[:, part:].T]])


def _steps(data: Bytes, begins: Any, limits: Any, layout: RecordLayout) -> Any:
    """Places in all parts (columns) step by step, until nearly all parts have passed their limits."""
    last, kind = len(data) - layout.head, f"{layout.order}u4"
    lengths = _places(data, 4)[layout.length_at :]
    most = int(np.median(limits - begins)) // layout.head  # for half of the parts, unless damage keeps them in place
    at, rows, half_done = begins, [begins], False
    while len(rows) <= most:
        for _ in range(_STEPS):
            at = at + lengths[np.minimum(at, last)].view(kind)
            at += layout.beyond
            rows.append(at)
        open_parts = int((at < limits).sum())
        if not open_parts:
            break
        if not half_done and 2 * open_parts <= len(begins):
            half_done, most = True, _MOST_MORE * len(rows)
    return np.array(rows)
