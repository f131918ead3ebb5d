"""Packet files: the headers of all packets of a host's data link, `packets/<host>.parquet` in a run directory.

A row is a frame as the kernel handled it. With segmentation offload a frame is many packets on the wire: `segments` of
them, each with the headers of the frame, so the exact number of bytes on the wire is

    frame_bytes + (segments - 1) * (frame_bytes - payload_bytes)

An interface without hardware (veth, loopback) counts `frame_bytes`, a network card the bytes on the wire. Preamble and
checksum of Ethernet are in neither.

Addresses and ports are in the metadata, in `flows`: the column `flow` is the position in that list. Row groups are
independent: a damaged one loses only its own rows.
"""

from __future__ import annotations

from typing import Dict, Optional, Tuple

from driple.contracts.formats.trace import COUNTER, GAUGE, NAME, TIME, Column
from driple.contracts.protocol.message import Message

SCHEMA_VERSION = 1

GROUP_ROWS = 32_768

TCP, UDP = 6, 17
FIN, SYN, RST, PSH, ACK = 1, 2, 4, 8, 16

HEADERS = "headers"
CAPTURES: Dict[str, str] = {HEADERS: "headers of every packet of the data link of each host"}
"""Values of the key `capture` of experiments."""

PACKET_COLUMNS: Tuple[Column, ...] = (
    Column("t_mono_us", TIME, "int64", "us", "host's monotonic clock when the kernel sent or received the frame"),
    Column("flow", NAME, "int32", "", "position of its flow in the metadata `flows`"),
    Column("frame_bytes", GAUGE, "int32", "B", "length of the frame with its Ethernet header"),
    Column("payload_bytes", GAUGE, "int32", "B", "bytes behind the TCP or UDP header; of other protocols 0"),
    Column("segments", GAUGE, "int32", "packets", "packets on the wire that the frame stands for"),
    Column("seq", COUNTER, "uint32", "B", "TCP sequence number; else 0"),
    Column("ack", COUNTER, "uint32", "B", "TCP acknowledgement number; else 0"),
    Column("flags", NAME, "int32", "", "TCP flags: FIN 1, SYN 2, RST 4, PSH 8, ACK 16; else 0"),
)


class PacketFlow(Message):
    """A directional flow: all packets of one protocol from one endpoint to another."""

    sent: bool
    """Whether this host sent it. False also on the loopback interface, where a packet is recorded on arrival."""
    protocol: int
    """Number of the IP protocol; for frames that are not IP, the EtherType."""
    source: str = ""
    """Address; empty for frames that are not IP."""
    source_port: int = 0
    destination: str = ""
    destination_port: int = 0


class PacketFacts(Message):
    """Metadata of a packet file, under METADATA_KEY of trace.py."""

    schema_version: int
    host: str
    interface: str
    dropped: int
    """Frames that the kernel could not store because the capture was too slow: they are missing."""
    stopped_early: Optional[str]
    """Why the capture ended before the run did; None if it did not."""
    damaged_bytes: int
    """Bytes of the capture that could not be read when it was sealed."""
    first_mono_us: int
    last_mono_us: int
    """When the capture began and ended, also if no packet came then."""
    snap: str
    """Which part of a frame was looked at."""
    flows: Tuple[PacketFlow, ...]
