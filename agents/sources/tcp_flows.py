"""Counters of every TCP flow of the host's network namespace, asked from the kernel through sock_diag.

This is what later shows who sent how much to whom, also where several tasks share an interface.

To find flows the kernel walks its whole table of connections, which takes 0.4 ms where that has 2 MB, and more on
larger hosts. So flows that are known are asked for one by one, and the table is walked when there may be new ones: when
connections were opened, as the kernel counts them, and also at the read after (a connection is counted a little before
it can be found), when a known flow is gone, and once a second whatever the count says.
"""

from __future__ import annotations

import logging
import os
import socket
import struct
from contextlib import suppress
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Set, Tuple

from driple.agents.sampler.parquet_writer import Cell
from driple.agents.sources.base import period_in_ticks
from driple.contracts.errors import BadInput
from driple.contracts.formats.trace import FLOW_COLUMNS, Column

log = logging.getLogger(__name__)

MAX_FLOWS = 4096  # flows kept of one read: a server with a hundred thousand clients must not fill the disk

_NETLINK_SOCK_DIAG = 4
_TCPDIAG_GETSOCK, _SOCK_DIAG_BY_FAMILY = 18, 20
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_REQUEST, _REQUEST_DUMP = 1, 0x301
_HEADER = struct.Struct("=IHHII")
_QUESTION = struct.Struct("=BBBxI48s")
_OLD_QUESTION = struct.Struct("=BxxB48xII")
_ATTRIBUTE = struct.Struct("=HH")
# family, state, ports (big-endian), source, destination, interface, cookie, ..., inode
_PORTS = struct.Struct(">HH")
_COOKIE = struct.Struct("=Q")
_WORD = struct.Struct("=I")
_MESSAGE_SIZE = 72
_IDENTITY = slice(4, 52)  # ports, addresses, interface and cookie, in a message as in a question
_INFO = 2
_TOTAL_RETRANS = 100
_BYTES = struct.Struct("=QQ")
_BYTES_ACKED = 120
# Established, and closing with data still on the way. Others (listening, time-wait) have no counters.
_STATES = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 8 | 1 << 9 | 1 << 11
_MAPPED = bytes(10) + b"\xff\xff"
# The older question brings both families in one walk; the newer takes one walk for each.
_OLD = (_TCPDIAG_GETSOCK, _OLD_QUESTION.pack(socket.AF_UNSPEC, 1 << (_INFO - 1), _STATES, 0))
_BY_FAMILY = tuple(
    (_SOCK_DIAG_BY_FAMILY, _QUESTION.pack(family, socket.IPPROTO_TCP, 1 << (_INFO - 1), _STATES, bytes(48)))
    for family in (socket.AF_INET, socket.AF_INET6)
)
# A socket that was not the task's is looked at again after this long: it may have been handed over, or the process
# that owns it may not yet have been known.
_AGAIN_NS = 1_000_000_000
# A connection belongs to nobody until it is accepted, and a busy task may be slow to do that.
_YOUNG_NS = 3_000_000_000
_WALK_NS = 1_000_000_000
_FEW = 32  # asking for one flow costs some microseconds: beyond so many a walk is cheaper


class _Flow(NamedTuple):
    cookie: int
    inode: int
    message: bytes  # the part with the family, the ports and the addresses
    acked: int
    received: int
    retransmits: int


class _Known(NamedTuple):
    question: bytes  # a request for this flow alone
    ends: Tuple[Cell, ...]  # local address, local port, remote address, remote port
    of_task: Optional[int]
    since_ns: int  # when it was first seen


class FlowTable:
    """One row for each TCP flow at each read."""

    name = "flows"
    columns: Sequence[Column] = FLOW_COLUMNS

    task_sockets: Optional[Callable[[], Set[int]]] = None
    """Returns the inodes of the task's sockets; None if no task is watched."""
    task_pids: Optional[Callable[[], Sequence[int]]] = None
    """Returns the task's processes; those whose descriptors we may not read may own any socket."""

    def __init__(self, hz: float, flows_hz: float) -> None:
        self.period_ticks = period_in_ticks(hz, flows_hz)
        self._socket: Optional[socket.socket] = None
        self._buffer = bytearray(1 << 16)
        self._sequence = 0
        self._questions: Sequence[Tuple[int, bytes]] = (_OLD,)
        self._known: Dict[int, _Known] = {}
        self._checked_ns = 0
        self._snmp = -1
        self._opened: Optional[bytes] = None
        self._rested = 0
        self._walked_ns = 0
        self._failures = self._left_out = self._most = self._walks = 0

    def open(self) -> None:
        """Raises BadInput where the kernel has no sock_diag for TCP."""
        try:
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETLINK_SOCK_DIAG)
            self._socket.settimeout(1.0)
            self._socket.bind((0, 0))
            self._choose()
            with suppress(OSError):
                self._snmp = os.open("/proc/net/snmp", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            self.close()
            raise BadInput(f"--flows: the kernel does not tell TCP flows ({error.strerror}; module tcp_diag)") from None

    def read(self, t_mono_ns: int) -> Sequence[Sequence[Cell]]:
        """All flows now; empty when the kernel did not answer."""
        try:
            raw = self._flows(t_mono_ns)
        except OSError as error:
            self._failures += 1
            if self._failures == 1:
                log.warning("flows: the kernel did not answer (%s)", error)
            return ()
        self._most = max(self._most, len(raw))
        self._left_out += max(0, len(raw) - MAX_FLOWS)
        again = t_mono_ns - self._checked_ns >= _AGAIN_NS
        sockets: Optional[Set[int]] = None
        other: Optional[int] = 0
        known: Dict[int, _Known] = {}
        rows: List[Sequence[Cell]] = []
        for flow in raw[:MAX_FLOWS]:
            kept = self._known.get(flow.cookie)
            young = kept is None or t_mono_ns - kept.since_ns < _YOUNG_NS
            if kept is None or ((young or again) and kept.of_task != 1):
                if sockets is None and self.task_sockets is not None:
                    sockets = self.task_sockets()
                    other = None if self.task_pids is not None and any(map(_hidden, self.task_pids())) else 0
                of_task = None if sockets is None else 1 if flow.inode in sockets else other
                since_ns = t_mono_ns if kept is None else kept.since_ns
                kept = _Known(_question(flow.message), _ends(flow.message), of_task, since_ns)
            known[flow.cookie] = kept
            counts = flow.acked, flow.received, flow.retransmits
            rows.append((t_mono_ns, flow.cookie, *kept.ends, kept.of_task, *counts))
        self._known = known
        if again:
            self._checked_ns = t_mono_ns
        return rows

    def quality(self) -> Dict[str, Any]:
        counts = {"most_flows": self._most, "flows_left_out": self._left_out}
        return {**counts, "walks": self._walks, "failures": self._failures}

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._snmp >= 0:
            os.close(self._snmp)
            self._snmp = -1

    def _choose(self) -> None:
        try:
            self._walk()
        except OSError:
            self._questions = _BY_FAMILY
            self._walk()

    def _flows(self, t_mono_ns: int) -> List[_Flow]:
        before, self._opened = self._opened, self._count_opened()
        self._rested = self._rested + 1 if self._opened is not None and self._opened == before else 0
        if self._rested >= 2 and t_mono_ns - self._walked_ns < _WALK_NS and len(self._known) <= _FEW:
            with suppress(OSError):  # one is gone
                questions = [kept.question for kept in self._known.values()]
                found = self._ask(_SOCK_DIAG_BY_FAMILY, _REQUEST, questions)
                if len(found) == len(questions):
                    return found
        self._walked_ns = t_mono_ns
        return self._walk()

    def _count_opened(self) -> Optional[bytes]:
        """Number of connections ever opened here, by either end; None if the kernel does not report it."""
        try:
            # Two lines, names and figures: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens.
            figures = os.pread(self._snmp, 4096, 0).split(b"\nTcp: ", 2)[2]
            return b" ".join(figures.split(None, 6)[4:6])
        except (OSError, IndexError):
            return None

    def _walk(self) -> List[_Flow]:
        self._walks += 1
        return [flow for kind, question in self._questions for flow in self._ask(kind, _REQUEST_DUMP, [question])]

    def _ask(self, kind: int, flags: int, questions: Sequence[bytes]) -> List[_Flow]:
        """Sends all requests at once. A dump is answered by many messages and an end, any other request by one."""
        assert self._socket is not None
        found: List[_Flow] = []
        if not questions:
            return found
        self._sequence += 1
        header = _HEADER.pack(_HEADER.size + len(questions[0]), kind, flags, self._sequence, 0)
        self._socket.send(b"".join(header + question for question in questions))
        left = len(questions)
        while left:
            length = self._socket.recv_into(self._buffer)
            at = 0
            while at + _HEADER.size <= length:
                size, kind, _, sequence, _ = _HEADER.unpack_from(self._buffer, at)
                if sequence == self._sequence:  # an answer to a question that we gave up is passed over
                    if kind == _NLMSG_ERROR:
                        code = -struct.unpack_from("=i", self._buffer, at + _HEADER.size)[0]
                        raise OSError(code, os.strerror(code))
                    flow = _flow(self._buffer, at + _HEADER.size, at + size) if kind != _NLMSG_DONE else None
                    if flow is not None:
                        found.append(flow)
                    left -= kind == _NLMSG_DONE or flags == _REQUEST
                at += max(_HEADER.size, (size + 3) & ~3)
        return found


def _hidden(pid: int) -> bool:
    """Whether a process's descriptors cannot be read, as with another user's: it may then own any socket."""
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            for entry in entries:
                os.readlink(entry.path)
                break
    except PermissionError:
        return True
    except OSError:  # it has ended
        pass
    return False


def _question(message: bytes) -> bytes:
    return _QUESTION.pack(message[0], socket.IPPROTO_TCP, 1 << (_INFO - 1), _STATES, message[_IDENTITY])


def _flow(data: bytearray, at: int, end: int) -> Optional[_Flow]:
    """Decodes a message; None for a socket without counters."""
    part = at + _MESSAGE_SIZE
    while part + _ATTRIBUTE.size <= end:
        length, kind = _ATTRIBUTE.unpack_from(data, part)
        # Kernels before 4.1 have a shorter tcp_info, without the byte counts.
        if kind == _INFO and length - _ATTRIBUTE.size >= _BYTES_ACKED + _BYTES.size:
            info = part + _ATTRIBUTE.size
            (retransmits,) = _WORD.unpack_from(data, info + _TOTAL_RETRANS)
            acked, received = _BYTES.unpack_from(data, info + _BYTES_ACKED)
            (cookie,) = _COOKIE.unpack_from(data, at + 44)
            (inode,) = _WORD.unpack_from(data, at + 68)
            return _Flow(cookie, inode, bytes(data[at : at + _IDENTITY.stop]), acked, received, retransmits)
        part += max(_ATTRIBUTE.size, (length + 3) & ~3)
    return None


def _ends(message: bytes) -> Tuple[str, int, str, int]:
    local_port, remote_port = _PORTS.unpack_from(message, 4)
    return _address(message, 8), local_port, _address(message, 24), remote_port


def _address(message: bytes, at: int) -> str:
    """An address as text; IPv4 inside IPv6 as IPv4, so that both ends of a flow have the same spelling."""
    raw = message[at : at + 16]
    if message[0] == socket.AF_INET:
        return socket.inet_ntop(socket.AF_INET, raw[:4])
    if raw.startswith(_MAPPED):
        return socket.inet_ntop(socket.AF_INET, raw[12:])
    with suppress(OSError, ValueError):
        return socket.inet_ntop(socket.AF_INET6, raw)
    return raw.hex()
