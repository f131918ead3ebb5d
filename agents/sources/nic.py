"""Byte and packet counters of a network interface: by netlink where the kernel answers it, else from sysfs.

Netlink is preferred because one question brings all four counters of one moment, and because it always speaks of the
network namespace that the process is in, which a mounted /sys need not.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List, MutableSequence, Optional, Protocol, Sequence, Tuple

from driple.agents.sources.base import Source, Value, nth
from driple.contracts.errors import BadInput, UnknownName

log = logging.getLogger(__name__)

COLUMNS = ("nic_tx_bytes", "nic_rx_bytes", "nic_tx_packets", "nic_rx_packets")
SYSFS = Path("/sys/class/net")
Counts = Tuple[int, int, int, int]

# After the interface is gone, look for one of its name this often; each look costs as much as ten reads.
_RETRY_NS = 1_000_000_000
# A counter that falls from the top quarter of 32 bits to the lowest one has wrapped; any other fall is a reset.
_WRAP = 1 << 32

_NLMSG_ERROR, _RTM_NEWSTATS, _RTM_GETSTATS = 2, 92, 94
_HEADER = struct.Struct("=IHHII")
_STATS_MESSAGE = struct.Struct("=BBHII")
_ATTRIBUTE = struct.Struct("=HH")
_LINK_64 = 1
_FILTER_LINK_64 = 1 << (_LINK_64 - 1)


class Counters(Protocol):
    """A way to read the counters of one interface."""

    way: str  # `netlink` or `sysfs`

    def read(self) -> Counts:
        """TX bytes, RX bytes, TX packets, RX packets. Raises OSError when the interface is gone."""

    def close(self) -> None:
        """Closes the descriptors."""


class NetlinkCounters:
    """RTM_GETSTATS requests on a reused socket, into a reused buffer."""

    way = "netlink"

    def __init__(self, name: str) -> None:
        index = socket.if_nametoindex(name)
        self._buffer = bytearray(4096)
        size = _HEADER.size + _STATS_MESSAGE.size
        self._request = _HEADER.pack(size, _RTM_GETSTATS, 1, 1, 0) + _STATS_MESSAGE.pack(
            0, 0, 0, index, _FILTER_LINK_64
        )
        self._counters = struct.Struct("=QQQQ").unpack_from
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
        try:
            self._socket.settimeout(1.0)  # the kernel answers at once; never hang on one that does not
            self._socket.bind((0, 0))
            self._send, self._receive = self._socket.send, self._socket.recv_into
            self._send(self._request)
            self._at, self._size = self._locate(self._receive(self._buffer))
            self._socket.setblocking(False)
        except OSError:
            self._socket.close()
            raise

    def read(self) -> Counts:
        self._send(self._request)
        if self._receive(self._buffer) != self._size:
            self._locate(self._size)  # raises what the kernel said
            raise OSError("another answer than before")
        rx_packets, tx_packets, rx_bytes, tx_bytes = self._counters(self._buffer, self._at)
        return tx_bytes, rx_bytes, tx_packets, rx_packets

    def close(self) -> None:
        self._socket.close()

    def _locate(self, size: int) -> Tuple[int, int]:
        """Finds the four counters in the answer: some machines put padding before them."""
        kind = _HEADER.unpack_from(self._buffer)[1]
        if kind == _NLMSG_ERROR:
            code = -struct.unpack_from("=i", self._buffer, _HEADER.size)[0]
            raise OSError(code, os.strerror(code))
        at = _HEADER.size + _STATS_MESSAGE.size
        while kind == _RTM_NEWSTATS and at + _ATTRIBUTE.size <= size:
            length, attribute = _ATTRIBUTE.unpack_from(self._buffer, at)
            if attribute == _LINK_64:
                return at + _ATTRIBUTE.size, size
            at += max(_ATTRIBUTE.size, (length + 3) & ~3)
        raise OSError("the answer has no counters")


class SysfsCounters:
    """Four open descriptors, each re-read from its start."""

    way = "sysfs"

    def __init__(self, name: str, root: Path = SYSFS) -> None:
        self._fds: List[int] = []
        try:
            for column in COLUMNS:
                path = root / name / "statistics" / column.partition("_")[2]
                self._fds.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
            self.read()
        except (OSError, ValueError):
            self.close()
            raise

    def read(self) -> Counts:
        tx_bytes, rx_bytes, tx_packets, rx_packets = self._fds
        pread = os.pread
        return (
            int(pread(tx_bytes, 32, 0)),
            int(pread(rx_bytes, 32, 0)),
            int(pread(tx_packets, 32, 0)),
            int(pread(rx_packets, 32, 0)),
        )

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds = []


def connect(name: str) -> Counters:
    """The best way to read an interface on this machine. Raises OSError if there is none."""
    with suppress(OSError):
        return NetlinkCounters(name)
    return SysfsCounters(name)


def interfaces() -> Sequence[str]:
    """The interfaces of this network namespace."""
    return sorted(name for _, name in socket.if_nameindex())


class NicSource(Source):
    """The raw counters of an interface. Wraps, resets and losses are counted, not corrected."""

    period_ticks = 1

    def __init__(self, interface: str, position: int = 0) -> None:
        self.name = "nic" if position == 0 else f"nic{position}"
        self.columns: Sequence[str] = nth(COLUMNS, position)
        self._interface = interface
        self._counters: Optional[Counters] = None
        self._last: Counts = (0, 0, 0, 0)
        self._way = ""
        self._wraps = self._resets = self._vanished = 0
        self._retry_ns = 0

    def open(self) -> None:
        known = interfaces()
        if self._interface not in known:
            raise UnknownName("interface", self._interface, known)
        try:
            self._counters = self._connect()
            self._last = self._counters.read()
        except (OSError, ValueError) as error:
            raise BadInput(f"interface {self._interface}: its counters cannot be read: {error}") from None
        self._way = self._counters.way

    def read(self, t_mono_ns: int, row: MutableSequence[Value], at: int) -> None:
        counters = self._counters
        if counters is None:
            counters = self._find_again(t_mono_ns)
            if counters is None:
                return
        try:
            counts = counters.read()
        except (OSError, ValueError) as error:
            self._lose(t_mono_ns, error)
            return
        last = self._last
        if counts != last:
            if counts[0] < last[0] or counts[1] < last[1] or counts[2] < last[2] or counts[3] < last[3]:
                self._count_falls(last, counts)
            self._last = counts
        row[at], row[at + 1], row[at + 2], row[at + 3] = counts

    def quality(self) -> Dict[str, Any]:
        return {
            "interface": self._interface,
            "way": self._way,
            "wraps": self._wraps,
            "resets": self._resets,
            "vanished": self._vanished,
        }

    def close(self) -> None:
        if self._counters is not None:
            self._counters.close()
            self._counters = None

    def _connect(self) -> Counters:
        return connect(self._interface)

    def _lose(self, t_mono_ns: int, error: Exception) -> None:
        self.close()
        self._retry_ns = t_mono_ns + _RETRY_NS
        self._vanished += 1
        if self._vanished == 1:
            log.warning("interface %s is gone (%s): nulls until it comes back", self._interface, error)

    def _find_again(self, t_mono_ns: int) -> Optional[Counters]:
        if t_mono_ns < self._retry_ns:
            return None
        self._retry_ns = t_mono_ns + _RETRY_NS
        with suppress(OSError, ValueError):
            self._counters = self._connect()
        return self._counters

    def _count_falls(self, last: Counts, counts: Counts) -> None:
        fallen = [(before, after) for before, after in zip(last, counts) if after < before]
        wrapped = [before < _WRAP and before >= _WRAP - _WRAP // 4 and after < _WRAP // 4 for before, after in fallen]
        # Counters wrap one by one and are reset together.
        if all(wrapped):
            self._wraps += len(fallen)
        else:
            self._resets += 1
            if self._resets == 1:
                log.warning("interface %s: its counters were set back", self._interface)
