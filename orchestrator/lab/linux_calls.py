"""Linux system calls that Python lacks: namespaces, mounts, timers, offloads of a network interface."""

from __future__ import annotations

import array
import ctypes
import fcntl
import os
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

NEW_TIME, NEW_MOUNT, NEW_UTS, NEW_IPC, NEW_USER, NEW_PID, NEW_NET = (
    0x80, 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
)  # fmt: skip
NO_SUID, NO_DEVICES, NO_EXEC, BIND, RECURSIVE = 1 << 1, 1 << 2, 1 << 3, 1 << 12, 1 << 14

_ETHTOOL_IOCTL = 0x8946
_SET_TSO, _SET_GSO = 0x1F, 0x24

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, doing: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{doing}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    """unshare(2); os.unshare exists from Python 3.12 on."""
    _checked(_libc.unshare(flags), "new namespace")


def enter(namespace_fd: int, kind: int) -> None:
    """Moves the calling thread into a namespace."""
    _checked(_libc.setns(namespace_fd, kind), "enter namespace")


def mount(source: str, target: str, kind: str, flags: int = 0, options: str = "") -> None:
    """mount(2)."""
    words = [word.encode() for word in (source, target, kind, options)]
    _checked(
        _libc.mount(words[0], words[1], words[2] or None, ctypes.c_ulong(flags), words[3] or None), f"mount {target}"
    )


def new_network() -> int:
    """A descriptor of a new network namespace, which exists as long as a process holds it."""
    with inside_network(None):
        return os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)


def switch_user(uid: int, gid: int) -> None:
    """Maps the root of a user namespace back to the user, in a nested namespace.

    As root, sshd would require groups and accounts that such a namespace cannot have.
    """
    unshare(NEW_USER)
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} 0 1"), ("gid_map", f"{gid} 0 1")):
        Path(f"/proc/self/{name}").write_text(text)


@contextmanager
def inside_network(namespace_fd: int | None) -> Iterator[None]:
    """Moves this thread, and the processes that it starts, into a network namespace; None for a new one."""
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        unshare(NEW_NET) if namespace_fd is None else enter(namespace_fd, NEW_NET)
        try:
            yield
        finally:
            enter(home, NEW_NET)
    finally:
        os.close(home)


def interval_timer(period_ns: int) -> int:
    """A descriptor of which each read of 8 bytes waits for the next period; os has timers from Python 3.13 on."""
    descriptor = _libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_CLOEXEC)
    _checked(descriptor, "timer")
    seconds, rest_ns = divmod(period_ns, 10**9)
    every_and_first = struct.pack("@4l", seconds, rest_ns, seconds, rest_ns)
    _checked(_libc.timerfd_settime(descriptor, 0, every_and_first, None), "set timer")
    return int(descriptor)


def set_segmentation(interface: str, on: bool) -> None:
    """Enables or disables packets of up to 64 KB, as `ethtool -K tso gso` does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        for request in (_SET_TSO, _SET_GSO):
            value = array.array("B", struct.pack("=II", request, int(on)))
            address, _ = value.buffer_info()
            with suppress(OSError):  # a kernel without the feature sends no such packets
                fcntl.ioctl(door, _ETHTOOL_IOCTL, struct.pack("16sP", interface.encode(), address) + bytes(16))
