"""PacketRing: the headers of all frames of an interface, through a ring that the kernel fills (AF_PACKET, TPACKET_V2).

Slots have a fixed size, and headers are at fixed places in them. So a header field of many frames is a strided view of
the ring, and is copied without a loop in Python. `PACKET_VNET_HDR` tells the segment size of frames that the interface
will cut (or has joined): with it the packets on the wire are known although offload is on.

There is one ring for IPv6 and one for all other frames, because their fields are at different places.
"""

from __future__ import annotations

import ctypes
import mmap
import socket
import struct
from typing import List, NamedTuple, Optional, Sequence, Tuple

from driple.contracts.errors import BadInput

Block = Tuple[int, List[bytes]]
"""A number of frames, and for each word of the layout its values as bytes."""

_SOL_PACKET = 263
_RX_RING, _STATISTICS, _VERSION, _RESERVE, _VNET_HDR = 5, 6, 10, 12, 15
_TPACKET_V2 = 1
_ATTACH_FILTER = 26
_ETH_P_ALL, _ETH_P_IPV6 = 3, 0x86DD
_SNAP = 78  # bytes kept of a frame: Ethernet, IPv6, and TCP up to its flags
_SLOT = 160
_BLOCK = 160 * 4096
_NET = 24  # word of a slot at which the network header begins
_RESERVED = 6  # bytes; with the 10 of the virtio header they keep the network header on a whole word
_GLANCE = 64
_SKB_PROTOCOL, _SKB_PKTTYPE, _OUTGOING = 0xFFFFF000, 0xFFFFF004, 4
_LOOPBACK, _ETHERNET = 772, 1
_REMEDY = "give python3 the capability (sudo setcap cap_net_raw+ep on the file of the interpreter) or log in as root"


class Layout(NamedTuple):
    """Which frames a ring takes, and the words of a slot that are kept of each, by name."""

    name: str
    ipv6: bool
    slots: int
    words: Sequence[Tuple[str, int]]


_FRAME = (
    *(("seconds", 4), ("nanoseconds", 5), ("status", 0), ("length", 1), ("ethertype", 8), ("kind", 10)),
    ("segment_size", _NET - 5),
)
_TRANSPORT = ("port_pair", "seq", "ack", "flags")

OTHERS = Layout(
    "frames",
    ipv6=False,
    slots=1 << 16,
    words=(
        *_FRAME,
        *((name, _NET + i) for i, name in enumerate(("ip", "fragment", "protocol", "source", "destination"))),
        *((name, _NET + 5 + i) for i, name in enumerate(_TRANSPORT)),
    ),
)
IPV6 = Layout(
    "frames6",
    ipv6=True,
    slots=1 << 14,
    words=(
        *_FRAME,
        ("protocol", _NET + 1),
        *((f"source{i}", _NET + 2 + i) for i in range(4)),
        *((f"destination{i}", _NET + 6 + i) for i in range(4)),
        *((name, _NET + 10 + i) for i, name in enumerate(_TRANSPORT)),
    ),
)
LAYOUTS = (OTHERS, IPV6)


def open_packet_socket() -> socket.socket:
    """A packet socket that receives nothing yet. Raises BadInput without the capability, with the remedy."""
    try:
        return socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    except PermissionError:
        raise BadInput(f"capture: no permission to record packets (CAP_NET_RAW): {_REMEDY}") from None
    except OSError as error:
        raise BadInput(f"capture: this kernel has no packet sockets ({error.strerror})") from None


class PacketRing:
    """The frames of one interface that fit a layout."""

    def __init__(self, line: socket.socket, interface: str, layout: Layout) -> None:
        """Takes over the socket. Raises BadInput if the interface does not exist or is of another kind."""
        self.layout = layout
        self.dropped = 0
        self._line = line
        self._head = 0
        self.wrapped = False  # whether the last take ended at the ring's end, and more may have come
        try:
            self._open(interface)
        except OSError as error:
            line.close()
            raise BadInput(f"capture on {interface}: {error.strerror}") from None
        except BadInput:
            line.close()
            raise

    def _open(self, interface: str) -> None:
        line = self._line
        line.setsockopt(_SOL_PACKET, _VERSION, _TPACKET_V2)
        line.setsockopt(_SOL_PACKET, _VNET_HDR, 1)
        line.setsockopt(_SOL_PACKET, _RESERVE, _RESERVED)
        # Bound to no protocol first: that tells the kind of the interface, and nothing arrives before the filter.
        line.bind((interface, 0))
        kind = line.getsockname()[3]
        if kind not in (_ETHERNET, _LOOPBACK):
            raise BadInput(f"capture on {interface}: not an Ethernet interface (hardware type {kind})")
        program = _filter(self.layout.ipv6, kind == _LOOPBACK)
        code = ctypes.create_string_buffer(program)
        line.setsockopt(
            socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
        )
        per_block = _BLOCK // _SLOT
        blocks = -(-self.layout.slots // per_block)
        self._slots = blocks * per_block
        line.setsockopt(_SOL_PACKET, _RX_RING, struct.pack("IIII", _BLOCK, blocks, _SLOT, self._slots))
        memory = mmap.mmap(line.fileno(), _BLOCK * blocks, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self._memory = memory
        self._bytes = memoryview(memory)
        self._words = self._bytes.cast("I")
        self._free = memoryview(bytes(4 * self._slots)).cast("I")
        line.bind((interface, _ETH_P_ALL))

    def take(self) -> Optional[Block]:
        """The frames that have arrived since the last call; None if there are none. At most up to the ring's end."""
        count = self._ready()
        if not count:
            return None
        step = _SLOT // 4
        begin, end = self._head * step, (self._head + count) * step
        words = self._words
        columns = [words[begin + word : end : step].tobytes() for _, word in self.layout.words]
        words[begin:end:step] = self._free[:count]  # gives the slots back
        self._head = (self._head + count) % self._slots
        self.wrapped = self._head == 0
        return count, columns

    def count_dropped(self) -> int:
        """Frames for which there was no free slot, so far."""
        _, dropped = struct.unpack("II", self._line.getsockopt(_SOL_PACKET, _STATISTICS, 8))  # since the last look
        self.dropped += dropped
        return self.dropped

    def stop(self) -> None:
        """No more frames arrive; those in the ring can still be taken."""
        self._line.bind((self._line.getsockname()[0], 0))

    def close(self) -> None:
        """Safe to call twice."""
        for view in ("_words", "_bytes"):
            if hasattr(self, view):
                getattr(self, view).release()
        if hasattr(self, "_memory"):
            self._memory.close()
        self._line.close()

    def _ready(self) -> int:
        """Slots that are ready from the head on. Processors fill slots at the same time, so each is looked at."""
        left = self._slots - self._head
        span = _GLANCE
        while True:
            span = min(span, left)
            begin = self._head * _SLOT
            found = self._bytes[begin : begin + span * _SLOT : _SLOT].tobytes().find(0)
            if found >= 0:
                return found
            if span == left:
                return left
            span *= 8


def _filter(ipv6: bool, loopback: bool) -> bytes:
    """A program of the classic packet filter: the frames of a ring, on loopback only when they arrive."""
    take, drop = _instruction(0x06, 0, 0, _SNAP), _instruction(0x06, 0, 0, 0)
    program = []
    if loopback:
        program += [_instruction(0x28, 0, 0, _SKB_PKTTYPE), _instruction(0x15, 0, 1, _OUTGOING), drop]
    program += [_instruction(0x28, 0, 0, _SKB_PROTOCOL), _instruction(0x15, int(not ipv6), int(ipv6), _ETH_P_IPV6)]
    return b"".join([*program, take, drop])


def _instruction(code: int, if_true: int, if_false: int, value: int) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
