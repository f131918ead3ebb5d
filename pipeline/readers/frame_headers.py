"""Headers of frames as columns: link layer, VLAN tags, IPv4, IPv6, TCP and UDP."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from driple.contracts.formats.packets import TCP, UDP
from driple.pipeline.traffic.packet_columns import Endpoint, Flow, Packets, join

if TYPE_CHECKING:
    from driple.pipeline.readers.pcap import Records

Bytes: TypeAlias = NDArray[np.uint8]

_IPV4, _IPV6 = 0x0800, 0x86DD
_TAGS = (0x8100, 0x88A8)
_MOST_TAGS = 2
_WIDEST = 20 + 4 * _MOST_TAGS + 60 + 14  # bytes looked at: link layer, tags, the longest IP header, TCP to its flags
_AT_ONCE = 16_384  # frames; their headers fit into the cache of a processor
_SENT = 4  # packet type of a cooked capture: sent by the host of the capture


class LinkType(NamedTuple):
    """Where the EtherType and the network header of a link type are."""

    name: str
    ethertype_at: int | None
    """None for raw IP, which has no link layer."""
    network_at: int
    packet_type_at: int | None = None
    """Where a cooked capture says whether the host sent the packet: the last byte of the field."""


LINK_TYPES: dict[int, LinkType] = {
    1: LinkType("Ethernet", 12, 14),
    113: LinkType("Linux cooked capture", 14, 16, 1),
    276: LinkType("Linux cooked capture v2", 0, 20, 10),
    101: LinkType("raw IP", None, 0),
    12: LinkType("raw IP", None, 0),
    228: LinkType("raw IPv4", None, 0),
    229: LinkType("raw IPv6", None, 0),
}


class _Network(NamedTuple):
    """Where the fields of a version of IP are in its header, in bytes."""

    family: socket.AddressFamily
    protocol: int
    length: int
    beyond: int
    """What the length field leaves out of the packet."""
    addresses: int
    address_bytes: int


_NETWORKS = {
    4: _Network(socket.AF_INET, protocol=9, length=2, beyond=0, addresses=12, address_bytes=4),
    6: _Network(socket.AF_INET6, protocol=6, length=4, beyond=40, addresses=8, address_bytes=16),
}
_ETHERTYPES = {_IPV4: 4, _IPV6: 6}


class _Frames(NamedTuple):
    """Frames of one file and link type, as rows of equal width."""

    rows: Bytes
    records: Records
    sent: Any
    """Whether the host of the capture sent them; None if it is not known."""

    def where(self, keep: Any) -> _Frames:
        if keep.all():
            return self
        return _Frames(self.rows[keep], self.records.where(keep), None if self.sent is None else self.sent[keep])


def decode(data: Bytes, found: Sequence[Records], notes: tuple[str, ...]) -> Packets:
    """The packets of a file."""
    parts: list[Packets] = []
    for records in found:
        link = LINK_TYPES[records.link_type]
        safe = int(np.searchsorted(records.at, len(data) - _WIDEST, side="right"))
        for begin in range(0, safe, _AT_ONCE):
            parts += _of_link(data, records.where(slice(begin, min(safe, begin + _AT_ONCE))), link)
        if safe < len(records.at):  # near the end of the file
            start = int(records.at[safe])
            tail = np.concatenate([data[start:], np.zeros(_WIDEST, np.uint8)])
            last = records.where(slice(safe, None))
            parts += _of_link(tail, last._replace(at=last.at - start), link)
    return replace(join(parts), notes=notes)


def _of_link(data: Bytes, records: Records, link: LinkType) -> Iterator[Packets]:
    """Frames whose headers are at the same places are read together: usually these are all."""
    rows = np.lib.stride_tricks.sliding_window_view(data, _WIDEST)[records.at]
    sent = None if link.packet_type_at is None else rows[:, link.packet_type_at] == _SENT
    frames = _Frames(rows, records, sent)
    network_at: Any = np.full(len(rows), link.network_at, np.uint8)
    if link.ethertype_at is None:
        version = rows[:, 0] >> 4
        ethertype = np.where(version == 4, _IPV4, _IPV6)
    else:
        ethertype = _word(rows, link.ethertype_at, 2)
        for _ in range(_MOST_TAGS):
            tagged = (ethertype == _TAGS[0]) | (ethertype == _TAGS[1])
            if not tagged.any():
                break
            behind = network_at[tagged].astype(np.int64)[:, None] + np.arange(2, 4)
            pairs = np.take_along_axis(rows[tagged], behind, axis=1).astype(np.int64)
            ethertype[tagged] = pairs[:, 0] << 8 | pairs[:, 1]
            network_at[tagged] += 4
        version = np.where(ethertype == _IPV4, 4, np.where(ethertype == _IPV6, 6, 0)).astype(np.uint8)
    first = np.take_along_axis(rows, network_at[:, None].astype(np.int64), axis=1)[:, 0]
    header = np.where(version == 4, (first & 0x0F) * 4, np.where(version == 6, 40, 0)).astype(np.uint8)
    whole = (first >> 4 == version) & (header >= 20) & (records.captured >= network_at.astype(np.int64) + header)
    version = np.where(whole, version, 0)
    kinds = network_at.astype(np.int64) << 16 | header.astype(np.int64) << 8 | version
    for kind in np.unique(kinds).tolist() if np.any(kinds != kinds[0]) else [int(kinds[0])]:
        keep = kinds == kind
        if kind & 0xFF:
            yield _of_network(frames.where(keep), kind >> 16, kind >> 8 & 0xFF, _NETWORKS[kind & 0xFF])
        else:
            yield _others(frames.where(keep), ethertype[keep])


def _of_network(frames: _Frames, at: int, header: int, ip: _Network) -> Packets:
    rows, records = frames.rows, frames.records
    protocol = rows[:, at + ip.protocol]
    total = _word(rows, at + ip.length, 2) + ip.beyond
    inner = at + header
    there = np.ones(len(rows), bool) if ip.beyond else (_word(rows, at + 6, 2) & 0x1FFF) == 0  # no later fragment
    is_tcp = (protocol == TCP) & there & (records.captured >= inner + 14)
    is_udp = (protocol == UDP) & there & (records.captured >= inner + 8)
    has_ports = is_tcp | is_udp
    ports = _word(rows, inner, 4) * has_ports
    transport = np.where(is_tcp, (rows[:, inner + 12] >> 4).astype(np.int64) * 4, 8)
    # A length of 0: a frame that the interface was still to cut. It reaches to the end of the frame.
    total = np.where(total > ip.beyond, total, records.length - at)
    flow, flows = _numbered(frames, at, ip, ports)
    return Packets(
        t_ns=records.t_ns,
        flow=flow,
        frame_bytes=records.length,
        payload_bytes=np.maximum(0, total - header - transport) * has_ports,
        segments=np.ones(len(rows), np.int64),
        seq=_word(rows, inner + 4, 4) * is_tcp,
        ack=_word(rows, inner + 8, 4) * is_tcp,
        flags=rows[:, inner + 13] * is_tcp.astype(np.int64),
        flows=flows,
    )


def _numbered(frames: _Frames, at: int, ip: _Network, ports: Any) -> tuple[Any, tuple[Flow, ...]]:
    """Numbers of the flows of packets, and the flows."""
    begin, size = at + ip.addresses, ip.address_bytes
    protocol = frames.rows[:, at + ip.protocol]
    more = ports << 9 | protocol.astype(np.int64) << 1
    if frames.sent is not None:
        more |= frames.sent
    code = _ranks(more)
    for word in range(begin, begin + 2 * size, 8):
        ranks = _ranks(np.ascontiguousarray(frames.rows[:, word : word + 8]).view(np.uint64).ravel())
        code = _ranks(code * (int(ranks.max()) + 1) + ranks)
    first: Any = np.zeros(int(code.max()) + 1, np.int64)
    first[code[::-1]] = np.arange(len(code) - 1, -1, -1)
    flows = []
    for i in first.tolist():
        ends = [
            Endpoint(socket.inet_ntop(ip.family, frames.rows[i, start : start + size].tobytes()), port)
            for start, port in ((begin, int(ports[i]) >> 16), (begin + size, int(ports[i]) & 0xFFFF))
        ]
        flows.append(Flow(ends[0], ends[1], int(protocol[i]), None if frames.sent is None else bool(frames.sent[i])))
    return code, tuple(flows)


def _ranks(values: Any) -> Any:
    """The rank of each value among the distinct ones. Neighbours are often equal, so only changes are sorted."""
    begins = np.flatnonzero(np.r_[True, values[1:] != values[:-1]])
    if len(begins) == 1:
        return np.zeros(len(values), np.int64)
    ranks = np.unique(values[begins], return_inverse=True)[1]
    return np.repeat(ranks, np.diff(np.r_[begins, len(values)]))


def _others(frames: _Frames, ethertype: Any) -> Packets:
    """Frames that are not IP: only their sizes are of interest."""
    nothing: Any = np.zeros(len(frames.rows), np.int64)
    own = nothing if frames.sent is None else frames.sent.astype(np.int64)
    codes, flow = np.unique(ethertype.astype(np.int64) * 2 + own, return_inverse=True)
    nobody = Endpoint("", 0)
    known = frames.sent is not None
    return Packets(
        t_ns=frames.records.t_ns,
        flow=flow.astype(np.int64),
        frame_bytes=frames.records.length,
        payload_bytes=nothing,
        segments=nothing + 1,
        seq=nothing,
        ack=nothing,
        flags=nothing,
        flows=tuple(Flow(nobody, nobody, code // 2, bool(code % 2) if known else None) for code in codes.tolist()),
    )


def _word(rows: Bytes, at: int, size: int) -> Any:
    """A field in the byte order of the network."""
    return np.ascontiguousarray(rows[:, at : at + size]).view(f">u{size}").ravel().astype(np.int64)
