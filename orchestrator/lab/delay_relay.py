"""Delays what hosts send, in user space, for kernels without netem.

Between a host's link and the bridge stands a TAP device: the relay reads the bridge's end of the link with a packet
socket, and writes each packet to the TAP device when its delay has passed. The other way it passes packets on at once.
Packets of up to 64 KB stay whole: both ends carry the header that describes them (`struct virtio_net_hdr`).

The supervisor starts it as a process and ends it; the TAP devices end with it.
"""

from __future__ import annotations

import fcntl
import os
import select
import socket
import struct
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_TUN = "/dev/net/tun"
_SET_INTERFACE, _SET_OFFLOAD = 0x400454CA, 0x400454D0
_TAP, _NO_PACKET_INFO, _WITH_HEADER = 0x0002, 0x1000, 0x4000
_CHECKSUMS_AND_SEGMENTS = 0x01 | 0x02 | 0x04
_ALL_PROTOCOLS = 0x0003
_SOL_PACKET, _PACKET_VNET_HDR, _PACKET_IGNORE_OUTGOING = 263, 15, 23
_SO_RCVBUFFORCE, _SO_SNDBUFFORCE = 33, 32
_BUFFER_BYTES = 32 << 20
_LARGEST = 70_000
_AT_ONCE = 64
"""Packets that are read from one end before the others get their turn."""
_EARLY_S = 5e-4
"""Before a packet is due, the relay looks without waiting: a sleep ends late, the later the longer it was."""
_PRIORITY = 1
"""Real-time, the lowest: hosts of a lab share the processors with the relay, as those of a network do not."""
_SLACK_NS = "1000"
_WAITING_BYTES = 256 << 20
"""Packets above this are dropped, as a full queue of a switch does."""


def open_tap(name: str) -> int:
    """A new TAP device in the present network namespace; it exists as long as the descriptor is open."""
    descriptor = os.open(_TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        request = struct.pack("16sH22x", name.encode(), _TAP | _NO_PACKET_INFO | _WITH_HEADER)
        fcntl.ioctl(descriptor, _SET_INTERFACE, request)
        fcntl.ioctl(descriptor, _SET_OFFLOAD, _CHECKSUMS_AND_SEGMENTS)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def open_port(name: str) -> socket.socket:
    """A packet socket on the bridge's end of a link: what the host sends, and a way to it."""
    port = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    try:
        port.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
        port.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        for option in (_SO_RCVBUFFORCE, _SO_SNDBUFFORCE):
            port.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
        port.setblocking(False)
        port.bind((name, _ALL_PROTOCOLS))
    except OSError:
        port.close()
        raise
    return port


def relay(pairs: Sequence[tuple[int, int]], delay_s: float, until: int) -> None:
    """Passes packets on until the descriptor `until` is readable or closed.

    Args:
        pairs: descriptors of the port and the TAP device of each host.
        delay_s: for packets from port to TAP device.
        until: the read end of a pipe.
    """
    waiting: deque[tuple[float, int, bytes]] = deque()  # equal delays: the first one in is the first one out
    waiting_bytes = 0
    other = dict(pairs) | {tap: port for port, tap in pairs}
    ports = {port for port, _ in pairs}
    now = time.monotonic
    while True:
        while waiting and waiting[0][0] <= now():
            _, target, packet = waiting.popleft()
            waiting_bytes -= len(packet)
            _write(target, packet)
        left = max(0.0, waiting[0][0] - now() - _EARLY_S) if waiting else None
        # Not epoll: its time limit is in whole milliseconds.
        ready, _, _ = select.select([until, *other], (), (), left)
        if until in ready:
            return
        for source in ready:
            for _ in range(_AT_ONCE):
                try:
                    packet = os.read(source, _LARGEST)
                except OSError:  # nothing more now, or the link is down
                    break
                if source not in ports:
                    _write(other[source], packet)
                elif waiting_bytes < _WAITING_BYTES:
                    waiting.append((now() + delay_s, other[source], packet))
                    waiting_bytes += len(packet)


def _write(target: int, packet: bytes) -> None:
    with suppress(OSError):  # a full queue drops packets, and so does a link that is down
        os.write(target, packet)


def _raise_priority() -> None:
    """Only root can; for others the relay waits for a processor as long as the tasks do."""
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(_PRIORITY))
    with suppress(OSError):  # an ordinary process may be woken 50 us late to save power
        Path("/proc/self/timerslack_ns").write_text(_SLACK_NS)


def main(arguments: Sequence[str]) -> int:
    """Arguments: the delay in seconds, the descriptor that ends it, then the descriptors of each host's two ends."""
    _raise_priority()
    delay_s, until, *ends = arguments
    numbers = [int(end) for end in ends]
    relay(list(zip(numbers[::2], numbers[1::2], strict=True)), float(delay_s), int(until))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
