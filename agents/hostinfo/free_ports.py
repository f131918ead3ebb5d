"""TCP ports that nobody uses, and that no outgoing connection will be given in the meantime."""

from __future__ import annotations

import errno
import random
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import List, Tuple

from driple.contracts.errors import BadInput

_LOW, _HIGH = 20_000, 32_000
_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_TRIES = 4


def free_ports(count: int) -> List[int]:
    """So many different ports that are free now. Raises BadInput if there are too few."""
    low, high = _candidates()
    # Below what the kernel hands out first; where that leaves nothing, what it hands out.
    wanted = random.sample(range(low, high), min(high - low, _TRIES * count)) + [0] * count
    ports: List[int] = []
    with ExitStack() as held:  # all at once, so that none is given twice
        for port in wanted:
            if len(ports) == count:
                break
            with suppress(OSError):
                ports.append(held.enter_context(_bound(port)).getsockname()[1])
    if len(ports) < count:
        raise BadInput(f"only {len(ports)} of {count} ports are free on this host")
    return ports


def _candidates() -> Tuple[int, int]:
    try:
        first, last = map(int, _RANGE.read_text(encoding="ascii").split())
    except (OSError, ValueError):
        return _LOW, _HIGH
    if last < _LOW or first >= _HIGH:
        return _LOW, _HIGH
    if first > _LOW:
        return _LOW, first
    return (last + 1, 65_536) if last < 65_536 - 1000 else (_LOW, _LOW)


def _bound(port: int) -> socket.socket:
    """Bound for both families where there are two: a port that either uses is not free."""
    try:
        return _bind(socket.AF_INET6, "::", port)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise
    return _bind(socket.AF_INET, "", port)


def _bind(family: int, address: str, port: int) -> socket.socket:
    sock = socket.socket(family)
    try:
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        sock.bind((address, port))
    except OSError:
        sock.close()
        raise
    return sock
