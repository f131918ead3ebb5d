"""The network interface of an address of this host."""

from __future__ import annotations

import contextlib
import fcntl
import socket
import struct
from pathlib import Path

from driple.contracts.errors import BadInput

_SIOCGIFADDR = 0x8915


def interface_of(host: str) -> str:
    """The name of the interface with this address. Raises BadInput if there is none."""
    find = _by_ipv6 if ":" in host else _by_ipv4
    for name in find(host):
        return name
    raise BadInput(f"no network interface of this host has the address {host}")


def _by_ipv4(host: str) -> list[str]:
    wanted, found = socket.inet_aton(host), []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # an interface without an address
                answer = fcntl.ioctl(asking, _SIOCGIFADDR, struct.pack("256s", name.encode()))
                if answer[20:24] == wanted:
                    found.append(name)
    return found


def _by_ipv6(host: str) -> list[str]:
    wanted = socket.inet_pton(socket.AF_INET6, host).hex()
    lines = Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()
    return [line.split()[-1] for line in lines if line.startswith(wanted)]
