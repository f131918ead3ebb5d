"""Network interfaces of this host: state, speed, addresses. Read by netlink, without a library.

sysfs would show those of another network namespace if only the namespace was changed, as nsenter does.
"""

from __future__ import annotations

import fcntl
import socket
import struct
from contextlib import suppress
from typing import Dict, Iterator, Optional, Tuple

from driple.contracts.protocol.requests import NicInfo

_HEADER = struct.Struct("IHHII")
_LINK = struct.Struct("BxHiII")
_ADDRESS = struct.Struct("BBBBI")
_ATTRIBUTE = struct.Struct("HH")
_RTM_NEWLINK, _RTM_GETLINK, _RTM_NEWADDR, _RTM_GETADDR = 16, 18, 20, 22
_ERROR, _DONE, _DUMP = 2, 3, 0x301
_IFLA_IFNAME, _IFLA_MTU, _IFA_ADDRESS, _IFA_LOCAL = 3, 4, 1, 2
_UP_AND_RUNNING = 0x1 | 0x40
_SIOCETHTOOL, _ETHTOOL_GSET = 0x8946, 1
_UNKNOWN_SPEED = 0xFFFFFFFF


def interfaces() -> Dict[str, NicInfo]:
    """All interfaces by name. Raises OSError if the kernel does not list them."""
    links: Dict[int, Tuple[str, NicInfo]] = {}
    for body in _dump(_RTM_GETLINK, _RTM_NEWLINK):
        _, _, index, flags, _ = _LINK.unpack_from(body)
        told = dict(_attributes(body, _LINK.size))
        name = told[_IFLA_IFNAME].rstrip(b"\0").decode("utf-8", "replace")
        mtu = struct.unpack("I", told[_IFLA_MTU])[0] if _IFLA_MTU in told else None
        up = flags & _UP_AND_RUNNING == _UP_AND_RUNNING
        links[index] = name, NicInfo(up=up, speed_mbit=_speed_mbit(name), addresses=(), mtu=mtu)
    for body in _dump(_RTM_GETADDR, _RTM_NEWADDR):
        family, _, _, _, index = _ADDRESS.unpack_from(body)
        told = dict(_attributes(body, _ADDRESS.size))
        packed = told.get(_IFA_LOCAL, told.get(_IFA_ADDRESS))  # on a point-to-point link the second is the other end
        if packed is not None and index in links and family in (socket.AF_INET, socket.AF_INET6):
            links[index][1].addresses += (socket.inet_ntop(family, packed),)
    return dict(links.values())


def _dump(request: int, reply: int) -> Iterator[bytes]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0) as sock:  # 0 is NETLINK_ROUTE
        sock.settimeout(5.0)
        sock.send(_HEADER.pack(_HEADER.size + 20, request, _DUMP, 1, 0) + bytes(20))
        while True:
            data = sock.recv(1 << 16)
            at = 0
            while at + _HEADER.size <= len(data):
                size, kind, *_ = _HEADER.unpack_from(data, at)
                if kind == _DONE:
                    return
                if kind == _ERROR or size < _HEADER.size:
                    raise OSError("the kernel does not list its interfaces")
                if kind == reply:
                    yield data[at + _HEADER.size : at + size]
                at += size + 3 & ~3


def _attributes(body: bytes, at: int) -> Iterator[Tuple[int, bytes]]:
    while at + _ATTRIBUTE.size <= len(body):
        size, kind = _ATTRIBUTE.unpack_from(body, at)
        if size < _ATTRIBUTE.size:
            return
        yield kind, body[at + _ATTRIBUTE.size : at + size]
        at += size + 3 & ~3


def _speed_mbit(name: str) -> Optional[int]:
    import ctypes

    about = ctypes.create_string_buffer(44)  # struct ethtool_cmd
    struct.pack_into("I", about, 0, _ETHTOOL_GSET)
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        asked = struct.pack("16sP", name.encode("utf-8")[:15], ctypes.addressof(about)).ljust(40, b"\0")
        fcntl.ioctl(sock.fileno(), _SIOCETHTOOL, asked)
        low, high = struct.unpack_from("H", about, 12)[0], struct.unpack_from("H", about, 28)[0]
        speed = int(high << 16 | low)
        return speed if 0 < speed < _UNKNOWN_SPEED and speed != 0xFFFF else None
    return None
