"""Makes a packet file of a capture: clocks are mapped, headers are read, and flows get numbers."""

from __future__ import annotations

import heapq
import socket
import struct
from array import array
from bisect import bisect_right
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

from driple.agents.capture.packet_ring import IPV6, LAYOUTS, Layout
from driple.agents.sampler.parquet_writer import Field, ParquetWriter
from driple.agents.sampler.samples_file import SamplesFile
from driple.contracts.errors import BadInput
from driple.contracts.formats.packets import (
    GROUP_ROWS,
    PACKET_COLUMNS,
    SCHEMA_VERSION,
    TCP,
    UDP,
    PacketFacts,
    PacketFlow,
)
from driple.contracts.formats.trace import METADATA_KEY
from driple.contracts.protocol.message import encode
from driple.contracts.protocol.requests import PacketsAnswer
from driple.contracts.run_dir import replacing

PacketKey = Tuple[Any, ...]
Row = Tuple[int, ...]
"""Values of PACKET_COLUMNS."""

_SENT = 4  # of the kinds of packets (PACKET_OUTGOING)
_HAS_TAG = 0x10  # of the status: the kernel took a VLAN tag off
_ETHERNET, _TAG, _UDP_HEADER = 14, 4, 8
_IPV4, _IPV6 = 0x0800, 0x86DD
_PLAIN_IPV4 = 0x45  # version 4, a header without options
_SNAP = "Ethernet, IP and TCP headers without options"


def seal_packets(samples: Path, out: Path) -> PacketsAnswer:
    """Writes the packet file, and removes the capture unless a part of it is damaged."""
    source = SamplesFile(samples)
    note = source.note
    flows = _Flows()
    clock = _Clock(source)
    damaged = sum(end - start for start, end in source.damaged)
    streams = [
        _rows(source, number, layout, clock, flows) for number, layout in enumerate(LAYOUTS) if source.rows[number]
    ]
    rows = heapq.merge(*streams, key=itemgetter(0)) if len(streams) > 1 else iter(streams[0] if streams else ())
    fields = [Field(column.name, column.type, True) for column in PACKET_COLUMNS]
    count = 0
    with replacing(out, "wb") as stream:
        writer = ParquetWriter(stream, fields, packed=True)  # type: ignore[arg-type]
        while True:
            group = list(islice(rows, GROUP_ROWS))
            if not group:
                break
            count += len(group)
            writer.write_group(list(zip(*group)))
        facts = PacketFacts(
            schema_version=SCHEMA_VERSION,
            host=str(source.about.get("host", "")),
            interface=str(source.about.get("interface", "")),
            dropped=int(note.get("dropped", 0)),
            stopped_early=note.get("stopped_early") if note else "the capture was killed",
            damaged_bytes=damaged,
            first_mono_us=int(note.get("first_mono_ns", clock.first_ns)) // 1000,
            last_mono_us=int(note.get("last_mono_ns", clock.last_ns)) // 1000,
            snap=_SNAP,
            flows=tuple(flows.found),
        )
        writer.close({METADATA_KEY: encode(facts)})
    if not damaged:
        samples.unlink()
    return PacketsAnswer(rows=count, dropped=facts.dropped, damaged_bytes=damaged, stopped_early=facts.stopped_early)


class _Clock:
    """From the wall clock to the monotonic one, by the pairs that the capture wrote."""

    def __init__(self, source: SamplesFile) -> None:
        blocks: Any = source.blocks(len(LAYOUTS))
        pairs: List[Tuple[int, int]] = [pair for mono, real in blocks for pair in zip(mono, real)]
        if not pairs:
            raise BadInput(f"{source.path}: no time can be read from it")
        self.first_ns, self.last_ns = pairs[0][0], pairs[-1][0]
        self._real = [real for _, real in pairs]
        self._offset = [real - mono for mono, real in pairs]

    def offset_ns(self, real_ns: int) -> int:
        """What to subtract from times around `real_ns`."""
        return self._offset[max(0, bisect_right(self._real, real_ns) - 1)]


class _Flows:
    """Numbers of flows in the order in which they appear."""

    def __init__(self) -> None:
        self.found: List[PacketFlow] = []
        self._number: Dict[PacketKey, int] = {}

    def number(self, flow: PacketFlow) -> int:
        key = tuple(vars(flow).values())
        if key not in self._number:
            self._number[key] = len(self.found)
            self.found.append(flow)
        return self._number[key]


def _rows(source: SamplesFile, number: int, layout: Layout, clock: _Clock, flows: _Flows) -> Iterator[Row]:
    names = [name for name, _ in layout.words]
    addresses = [i for i, name in enumerate(names) if name.startswith(("source", "destination"))]
    first, ports = names.index("segment_size") + 1, names.index("port_pair")
    known: Dict[PacketKey, Tuple[int, int]] = {}
    sizes: Dict[PacketKey, Tuple[int, int, int]] = {}
    inside = _ipv6 if layout is IPV6 else _ipv4
    for block in source.blocks(number):
        columns: List[Any] = [
            column if i < first and names[i] != "ethertype" else _swapped(column) for i, column in enumerate(block)
        ]
        offset_ns = clock.offset_ns(columns[0][0] * 1_000_000_000 + columns[1][0])
        inner = zip(*columns[first:ports])
        outer = zip(*columns[:first], *columns[ports:])
        for seconds, nanoseconds, status, length, ethertype, kind, segment, port, seq, ack, flags in outer:
            header = next(inner)
            protocol, ip_bytes, transport = inside(ethertype & 0xFFFF, header, length)
            if not transport:
                port = 0
            sent = (kind >> 16) & 0xFF == _SENT
            key = (sent, protocol, port, *[header[i - first] for i in addresses])
            flow = known.get(key)
            if flow is None:
                flow = known[key] = flows.number(_flow(key, layout is IPV6)), protocol
            if protocol != TCP or not transport:
                seq = ack = flags = 0
            size_key = (length, ip_bytes, protocol, transport, flags >> 28, segment & 0xFFFF, status & _HAS_TAG)
            size = sizes.get(size_key)
            if size is None:
                size = sizes[size_key] = _sizes(*size_key)
            t_us = (seconds * 1_000_000_000 + nanoseconds - offset_ns) // 1000
            yield (t_us, flow[0], *size, seq, ack, (flags >> 16) & 0xFF)


def _swapped(column: Any) -> Any:
    """Words of the network as numbers."""
    words = array("I", column)
    words.byteswap()
    return words


def _ipv4(ethertype: int, header: Tuple[int, ...], length: int) -> Tuple[int, int, bool]:
    """The protocol, the bytes behind the IP header, and whether the TCP or UDP header is where it is expected."""
    ip, fragment, protocol = header[:3]
    if ethertype != _IPV4:
        return ethertype, 0, False
    total = ip & 0xFFFF or length - _ETHERNET
    number = (protocol >> 16) & 0xFF
    there = ip >> 24 == _PLAIN_IPV4 and not fragment & 0x1FFF and number in (TCP, UDP)
    return number, total - 20, there


def _ipv6(_: int, header: Tuple[int, ...], length: int) -> Tuple[int, int, bool]:
    number = (header[0] >> 8) & 0xFF
    return number, header[0] >> 16 or length - _ETHERNET - 40, number in (TCP, UDP)


def _sizes(
    length: int, ip_bytes: int, protocol: int, transport: bool, words: int, segment: int, tag: int
) -> Tuple[int, int, int]:
    """Length of the frame, bytes of payload, and packets on the wire."""
    frame = length + (_TAG if tag else 0)
    if not transport:
        return frame, 0, 1
    payload = max(0, ip_bytes - (4 * words if protocol == TCP else _UDP_HEADER))
    return frame, payload, -(-payload // segment) if segment and payload else 1


def _flow(key: PacketKey, ipv6: bool) -> PacketFlow:
    sent, protocol, ports, *words = key
    half = len(words) // 2
    is_ip = protocol < 0x100
    family = socket.AF_INET6 if ipv6 else socket.AF_INET
    ends = [socket.inet_ntop(family, struct.pack(f">{half}I", *part)) for part in (words[:half], words[half:])]
    return PacketFlow(
        sent=sent,
        protocol=protocol,
        source=ends[0] if is_ip else "",
        source_port=ports >> 16 if is_ip else 0,
        destination=ends[1] if is_ip else "",
        destination_port=ports & 0xFFFF if is_ip else 0,
    )
