"""Headers of frames as columns: link layer, VLAN tags, IPv4, IPv6, TCP and UDP."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from driple.contracts.formats.packets import TCP, UDP
from driple.pipeline.readers.frame_records import Records
from driple.pipeline.readers.record_chain import heads
from driple.pipeline.traffic.packet_columns import Endpoint, Flow, Packets

Bytes: TypeAlias = NDArray[np.uint8]

_IPV4, _IPV6 = 0x0800, 0x86DD
_TAGS = (0x8100, 0x88A8)
_MOST_TAGS = 2
WIDEST = 20 + 4 * _MOST_TAGS + 60 + 14
"""Bytes of a frame that are looked at: link layer, tags, the longest IP header, TCP to its flags."""
_AT_ONCE = 16_384  # frames; their headers fit into the cache of a processor
_PLAIN_IPV4, _PLAIN_BYTES = 0x45, 20  # the first byte and the length of a header without options
_UDP_HEADER = 8
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
        return _Frames(self.rows[keep], self.records.where(keep), None if self.sent is None else self.sent[keep])


def decode(padded: Bytes, records: Records) -> Iterator[Packets]:
    """The packets of a window, of which `WIDEST` more bytes can be read."""
    link = LINK_TYPES[records.link_type]
    for begin in range(0, len(records.at), _AT_ONCE):
        yield from _of_link(padded, records.where(slice(begin, begin + _AT_ONCE)), link)


def _of_link(padded: Bytes, records: Records, link: LinkType) -> Iterator[Packets]:
    """Frames whose headers are at the same places are read together: usually these are all."""
    rows = heads(padded, records.at, WIDEST)
    sent = None if link.packet_type_at is None else rows[:, link.packet_type_at] == _SENT
    frames = _Frames(rows, records, sent)
    if link.ethertype_at is None:
        ethertype: Any = np.where(rows[:, 0] >> 4 == 4, _IPV4, _IPV6)
    else:
        ethertype = rows[:, link.ethertype_at].astype(np.uint16) << 8 | rows[:, link.ethertype_at + 1]
    # Most captures have frames of one kind only, which is quick to see.
    first = rows[:, link.network_at]
    plain = (ethertype == _IPV4) & (first == _PLAIN_IPV4) & (records.captured >= link.network_at + _PLAIN_BYTES)
    if plain.all():
        yield _of_network(frames, link.network_at, _PLAIN_BYTES, 4)
        return
    network_at: Any = np.full(len(rows), link.network_at, np.int64)
    if link.ethertype_at is not None:
        for _ in range(_MOST_TAGS):
            tagged = (ethertype == _TAGS[0]) | (ethertype == _TAGS[1])
            if not tagged.any():
                break
            behind = network_at[tagged][:, None] + np.arange(2, 4)
            pairs = np.take_along_axis(rows[tagged], behind, axis=1).astype(np.uint16)
            ethertype[tagged] = pairs[:, 0] << 8 | pairs[:, 1]
            network_at[tagged] += 4
        first = np.take_along_axis(rows, network_at[:, None], axis=1)[:, 0]
    version = np.where(ethertype == _IPV4, 4, np.where(ethertype == _IPV6, 6, 0)).astype(np.uint8)
    header = np.where(version == 4, (first & 0x0F) * 4, np.where(version == 6, 40, 0)).astype(np.uint8)
    whole = (first >> 4 == version) & (header >= 20) & (records.captured >= network_at + header)
    kinds = network_at << 16 | header.astype(np.int64) << 8 | np.where(whole, version, 0)
    for kind in np.unique(kinds).tolist():
        keep = kinds == kind
        some = frames if keep.all() else frames.where(keep)
        if kind & 0xFF:
            yield _of_network(some, kind >> 16, kind >> 8 & 0xFF, kind & 0xFF)
        else:
            yield _others(some, ethertype[keep])


@lru_cache
def _fields(at: int, header: int, version: int) -> Any:
    """Where the fields of frames are whose IP header begins at a place and has a length."""
    ip, inner = _NETWORKS[version], at + header
    begin = at + ip.addresses
    words = {f"address{i}": ("<u8", begin + 8 * i) for i in range(2 * ip.address_bytes // 8)}
    transport = {"ports": (">u4", 0), "seq": (">u4", 4), "ack": (">u4", 8), "offset": ("u1", 12), "flags": ("u1", 13)}
    places = {
        **{"protocol": ("u1", at + ip.protocol), "length": (">u2", at + ip.length), "fragment": (">u2", at + 6)},
        **{name: (kind, inner + place) for name, (kind, place) in transport.items()},
        **words,
    }
    kinds, offsets = zip(*places.values(), strict=True)
    return np.dtype({"names": [*places], "formats": kinds, "offsets": offsets, "itemsize": WIDEST})


def _of_network(frames: _Frames, at: int, header: int, version: int) -> Packets:
    records, ip = frames.records, _NETWORKS[version]
    fields = frames.rows.view(_fields(at, header, version))[:, 0]
    protocol = fields["protocol"]
    inner = at + header
    is_tcp = (protocol == TCP) & (records.captured >= inner + 14)
    if version == 4:
        is_tcp &= fields["fragment"] & 0x1FFF == 0  # no later fragment
    total = fields["length"].astype(np.int64)
    total += ip.beyond
    # A length of 0: a frame that the interface was still to cut. It reaches to the end of the frame.
    uncut = total <= ip.beyond
    if uncut.any():
        total[uncut] = records.length[uncut] - at
    size = fields["offset"] >> 4
    transport = size.astype(np.int64)
    transport *= 4
    ports, seq, ack, flags = (fields[name].astype(np.int64) for name in ("ports", "seq", "ack", "flags"))
    has_ports = is_tcp
    if not is_tcp.all():
        is_udp = (protocol == UDP) & (records.captured >= inner + 8)
        if version == 4:
            is_udp &= fields["fragment"] & 0x1FFF == 0
        has_ports = is_tcp | is_udp
        transport[~is_tcp] = _UDP_HEADER
        for column in (seq, ack, flags):
            column[~is_tcp] = 0
        ports[~has_ports] = 0
    payload = total - header
    payload -= transport
    payload[(payload < 0) | ~has_ports] = 0
    flow, flows = _numbered(frames, fields, ip, ports)
    return Packets(
        t_ns=records.t_ns,
        flow=flow,
        frame_bytes=records.length,
        payload_bytes=payload,
        segments=np.ones(len(flow), np.int64),
        seq=seq,
        ack=ack,
        flags=flags,
        flows=flows,
    )


def _numbered(frames: _Frames, fields: Any, ip: _Network, ports: Any) -> tuple[Any, tuple[Flow, ...]]:
    """Numbers of the flows of packets, and the flows. Neighbours are often of one flow: only changes are compared."""
    more = ports << 9
    more |= fields["protocol"].astype(np.int64) << 1
    if frames.sent is not None:
        more |= frames.sent
    keys = [more.view(np.uint64), *(fields[f"address{i}"].copy() for i in range(2 * ip.address_bytes // 8))]
    changes: Any = np.arange(len(more)) == 0
    for key in keys:
        changes[1:] |= key[1:] != key[:-1]
    begins = np.flatnonzero(changes)
    first, ranks = _distinct([key[begins] for key in keys])
    size, flows = ip.address_bytes, []
    for i in begins[first].tolist():
        addresses = b"".join(key[i].tobytes() for key in keys[1:])
        ends = [
            Endpoint(socket.inet_ntop(ip.family, address), port)
            for address, port in (
                (addresses[:size], int(ports[i]) >> 16),
                (addresses[size:], int(ports[i]) & 0xFFFF),
            )
        ]
        protocol = int(fields["protocol"][i])
        flows.append(Flow(ends[0], ends[1], protocol, None if frames.sent is None else bool(frames.sent[i])))
    return np.repeat(ranks, np.diff(np.r_[begins, len(more)])), tuple(flows)


def _distinct(keys: Sequence[Any]) -> tuple[Any, Any]:
    """Where each distinct combination of keys is first, and the number of the combination of each place."""
    ranks: Any = np.zeros(len(keys[0]), np.int64)
    for key in keys:
        values, own = np.unique(key, return_inverse=True)
        if len(values) > 1:
            ranks = np.unique(ranks * len(values) + own, return_inverse=True)[1]
    first: Any = np.zeros(int(ranks.max()) + 1, np.int64)
    first[ranks[::-1]] = np.arange(len(ranks) - 1, -1, -1)
    return first, ranks


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
