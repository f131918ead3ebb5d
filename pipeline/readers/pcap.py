"""Reads pcap and pcapng files with numpy: the places of many records at once, then whole columns.

Byte orders, times in microseconds and nanoseconds, Ethernet (with VLAN tags), Linux cooked captures and raw IP; IPv4
with options and IPv6. A file that is cut short is read up to its last whole packet.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput
from driple.pipeline.readers.file_window import FileWindow
from driple.pipeline.readers.frame_headers import LINK_TYPES, WIDEST, decode
from driple.pipeline.readers.frame_records import Records
from driple.pipeline.readers.pcapng import MAGIC as PCAPNG
from driple.pipeline.readers.pcapng import pcapng_records
from driple.pipeline.readers.record_chain import RecordLayout, heads, whole_records
from driple.pipeline.traffic.packet_columns import PacketCollector, Packets

_PCAP = {b"\xd4\xc3\xb2\xa1": ("<", 1000), b"\xa1\xb2\xc3\xd4": (">", 1000)}
_PCAP |= {b"\x4d\x3c\xb2\xa1": ("<", 1), b"\xa1\xb2\x3c\x4d": (">", 1)}
_HEADER, _HEAD = 24, 16
_LONGEST = 1 << 20


def is_capture(start: bytes) -> bool:
    """Whether a file begins like a pcap or pcapng file."""
    return start[:4] in _PCAP or start[:4] == PCAPNG


def read_pcap(path: Path) -> Packets:
    """Reads a capture. Raises BadInput if it is none, has no whole packet, or is of a link type that is not known."""
    try:
        with path.open("rb", buffering=0) as stream:
            return _read(path, FileWindow(stream, WIDEST))
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None


def _read(path: Path, window: FileWindow) -> Packets:
    if not is_capture(window.data[:4].tobytes()):
        raise BadInput(f"{path}: not a pcap or pcapng file")
    found: PacketCollector | None = None
    size = path.stat().st_size
    for records in _records(path, window):
        if records.link_type not in LINK_TYPES:
            known = ", ".join(f"{kind.name} ({number})" for number, kind in LINK_TYPES.items())
            raise BadInput(f"{path}: link type {records.link_type} is not supported (known: {known})")
        if found is None:  # a window is like the others
            found = PacketCollector(int(1.05 * len(records.at) * max(1.0, size / max(1, len(window.data)))))
        for part in decode(window.padded, records):
            found.add(part)
    cut = len(window.data) > 0
    if found is None or not len(found):
        raise BadInput(f"{path}: no whole packet" + (f"; it is cut short after {size} bytes" if cut else ""))
    notes = (f"{path.name}: cut short or damaged; read up to the last whole packet",) if cut else ()
    return found.packets(notes)


def _records(path: Path, window: FileWindow) -> Iterator[Records]:
    """Packets of the window, which then moves on; what is left of it at the end is not whole."""
    try:
        yield from pcapng_records(window) if window.data[:4].tobytes() == PCAPNG else _pcap_records(window)
    except (struct.error, ValueError, OverflowError):
        raise BadInput(f"{path}: the header is cut short or damaged") from None


def _pcap_records(window: FileWindow) -> Iterator[Records]:
    start = window.data[:_HEADER].tobytes()
    order, unit = _PCAP[start[:4]]
    snap, link_type = struct.unpack_from(f"{order}II", start, 16)
    window.advance(_HEADER)
    layout = _layout(order, unit, snap, window.data[:_HEAD].tobytes())
    while True:
        begin, end = whole_records(window.data, layout)
        head = heads(window.data, begin, _HEAD).view(f"{order}u4")
        second, fraction, captured, length = (head[:, i].astype(np.int64) for i in range(4))
        t_ns = second * 1_000_000_000 + fraction * unit
        yield Records(link_type & 0x0FFFFFFF, begin + _HEAD, captured, length, t_ns)
        window.advance(end)
        if not end or not len(window.data):
            return


def _layout(order: str, unit: int, snap: int, first: bytes) -> RecordLayout:
    longest, fractions = min(snap or _LONGEST, _LONGEST), 1_000_000_000 // unit

    def looks_right(head: Any) -> Any:
        fits = (head[:, 2] <= longest) & (head[:, 2] <= head[:, 3]) & (head[:, 3] - 1 < _LONGEST)
        return fits & (head[:, 1] < fractions)

    high, low = (3, 0) if order == "<" else (0, 3)
    # The times of a capture that is shorter than 194 days mostly have the same highest byte.
    marks = (*enumerate(first[high : high + 1], high), (8 + high, 0), (12 + high, 0))
    return RecordLayout(order, 8, _HEAD, _HEAD, 0, _LONGEST, 1, marks, 8 + low, looks_right)
