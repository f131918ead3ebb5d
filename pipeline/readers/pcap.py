"""Reads pcap and pcapng files with numpy: one pass over the record lengths, then whole columns.

Byte orders, times in microseconds and nanoseconds, Ethernet (with VLAN tags), Linux cooked captures and raw IP; IPv4
with options and IPv6. A file that is cut short is read up to its last whole packet.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from driple.contracts.errors import BadInput
from driple.pipeline.readers.frame_headers import LINK_TYPES, decode
from driple.pipeline.traffic.packet_columns import Packets

_PCAP = {b"\xd4\xc3\xb2\xa1": ("<", 1000), b"\xa1\xb2\xc3\xd4": (">", 1000)}
_PCAP |= {b"\x4d\x3c\xb2\xa1": ("<", 1), b"\xa1\xb2\x3c\x4d": (">", 1)}
_PCAPNG = b"\x0a\x0d\x0d\x0a"
_SECTION, _INTERFACE, _SIMPLE, _ENHANCED = 0x0A0D0D0A, 1, 3, 6
_TIME_UNIT, _TIME_OFFSET = 9, 14  # options of an interface
_ONE_BYTE = 255
_LONGEST = 1 << 20  # no packet is longer; a larger length is damage


class Records(NamedTuple):
    """Packets of one link type in a file."""

    link_type: int
    at: NDArray[np.int64]
    """Where each frame begins in the file."""
    captured: NDArray[np.int64]
    """Bytes of it that are in the file."""
    length: NDArray[np.int64]
    """Bytes that it had."""
    t_ns: NDArray[np.int64]

    def where(self, keep: Any) -> Records:
        """Some of them."""
        return self._replace(**{name: getattr(self, name)[keep] for name in ("at", "captured", "length", "t_ns")})


def is_capture(start: bytes) -> bool:
    """Whether a file begins like a pcap or pcapng file."""
    return start[:4] in _PCAP or start[:4] == _PCAPNG


def read_pcap(path: Path) -> Packets:
    """Reads a capture. Raises BadInput if it is none, has no whole packet, or is of a link type that is not known."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    if not is_capture(raw):
        raise BadInput(f"{path}: not a pcap or pcapng file")
    try:
        found, cut = _pcapng(raw) if raw[:4] == _PCAPNG else _pcap(raw)
    except (struct.error, ValueError, OverflowError):
        raise BadInput(f"{path}: the header is cut short or damaged") from None
    for records in found:
        if records.link_type not in LINK_TYPES:
            known = ", ".join(f"{kind.name} ({number})" for number, kind in LINK_TYPES.items())
            raise BadInput(f"{path}: link type {records.link_type} is not supported (known: {known})")
    if not any(len(records.at) for records in found):
        raise BadInput(f"{path}: no whole packet" + (f"; it is cut short after {len(raw)} bytes" if cut else ""))
    notes = (f"{path.name}: cut short or damaged; read up to the last whole packet",) if cut else ()
    data = np.frombuffer(raw, np.uint8)
    return decode(data, found, notes)


def _pcap(raw: bytes) -> tuple[list[Records], bool]:
    order, unit = _PCAP[raw[:4]]
    snap, link_type = struct.unpack_from(f"{order}II", raw, 16)
    begin = _begins_of_short(raw, order) if snap <= _ONE_BYTE else None
    if begin is None:
        begin = _begins(raw, order)
    head = _gather(raw, begin, 16).view(f"{order}u4").astype(np.int64)
    t_ns = head[:, 0] * 1_000_000_000 + head[:, 1] * unit
    end = int(begin[-1] + 16 + head[-1, 2]) if len(begin) else 24
    records = Records(link_type & 0x0FFFFFFF, begin + 16, head[:, 2], head[:, 3], t_ns)
    return [records], end != len(raw)


def _begins(raw: bytes, order: str) -> Any:
    """Where the whole records begin: each length leads to the next."""
    length_at = struct.Struct(f"{order}I").unpack_from
    at, end = 24, len(raw)
    found: list[int] = []
    append = found.append
    while at + 16 <= end:
        size = length_at(raw, at + 8)[0]
        if size > _LONGEST or at + 16 + size > end:
            break
        append(at)
        at += 16 + size
    return np.array(found, np.int64)


def _begins_of_short(raw: bytes, order: str) -> Any:
    """As `_begins`, twice as fast, for lengths of one byte; None if a length has more."""
    low = 8 if order == "<" else 11
    at, last = 24, len(raw) - 16
    found: list[int] = []
    append = found.append
    while at <= last:
        append(at)
        at += 16 + raw[at + low]
    if at > len(raw):
        found.pop()  # cut short
    begin = np.array(found, np.int64)
    sizes = _gather(raw, begin + 8, 4).view(f"{order}u4")
    return begin if not len(begin) or int(sizes.max()) <= _ONE_BYTE else None


@dataclass
class _Interface:
    link_type: int
    to_ns: tuple[int, int]
    """Numerator and denominator of nanoseconds in a unit of its time stamps."""
    offset_ns: int


def _pcapng(raw: bytes) -> tuple[list[Records], bool]:
    at, end, order = 0, len(raw), "<"
    interfaces: list[_Interface] = []
    first = 0  # of the interfaces of the section
    rows: list[tuple[int, int, int, int, int]] = []
    while at + 12 <= end:
        (kind,) = struct.unpack_from(f"{order}I", raw, at)
        if kind == _SECTION:
            order = "<" if raw[at + 8 : at + 12] == b"\x4d\x3c\x2b\x1a" else ">"
            first = len(interfaces)
            blocks = struct.Struct(f"{order}II").unpack_from
            enhanced = struct.Struct(f"{order}IIIII").unpack_from
        kind, size = blocks(raw, at)
        if size < 12 or size % 4 or at + size > end:
            break
        if kind == _ENHANCED:
            number, high, low, captured, length = enhanced(raw, at + 8)
            if captured > size - 32 or first + number >= len(interfaces):
                break
            rows.append((first + number, high << 32 | low, at + 28, captured, length))
        elif kind == _INTERFACE:
            interfaces.append(_interface(raw, at, size, order))
        elif kind == _SIMPLE:
            (length,) = struct.unpack_from(f"{order}I", raw, at + 8)
            rows.append((first, 0, at + 12, min(length, size - 16), length))
        at += size
    table = np.array(rows, np.uint64).reshape(-1, 5).astype(np.int64)
    found = []
    for number, interface in enumerate(interfaces):
        own = table[table[:, 0] == number]
        up, down = interface.to_ns
        whole, rest = own[:, 1] // down, own[:, 1] % down  # in two parts: the product can be beyond 64 bits
        if len(own) and not 0 <= int(whole.max()) * up + interface.offset_ns < 2**62 or np.any(own[:, 1] < 0):
            raise ValueError("a time that no capture has")
        t_ns = whole * up + rest * up // down + interface.offset_ns
        found.append(Records(interface.link_type, own[:, 2], own[:, 3], own[:, 4], t_ns))
    return [records for records in found if len(records.at)], at != end


def _interface(raw: bytes, at: int, size: int, order: str) -> _Interface:
    (link_type,) = struct.unpack_from(f"{order}H", raw, at + 8)
    unit, offset_ns = (1000, 1), 0  # microseconds
    option, end = at + 16, at + size - 4
    while option + 4 <= end:
        code, length = struct.unpack_from(f"{order}HH", raw, option)
        if code == 0:
            break
        if code == _TIME_UNIT:
            exponent = raw[option + 4]
            power = exponent & 0x7F
            unit = (1_000_000_000, 2**power) if exponent & 0x80 else _decimal(power)
        elif code == _TIME_OFFSET:
            offset_ns = struct.unpack_from(f"{order}q", raw, option + 4)[0] * 1_000_000_000
        option += 4 + (length + 3) // 4 * 4
    return _Interface(link_type, unit, offset_ns)


def _decimal(power: int) -> tuple[int, int]:
    return (10 ** (9 - power), 1) if power <= 9 else (1, 10 ** (power - 9))


def _gather(raw: bytes, begin: Any, size: int) -> Any:
    data = np.frombuffer(raw, np.uint8)
    return (
        np.ascontiguousarray(np.lib.stride_tricks.sliding_window_view(data, size)[begin])
        if len(begin)
        else (np.zeros((0, size), np.uint8))
    )
