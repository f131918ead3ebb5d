"""Processes of this host by /proc, and families of processes: a process that we started and all its descendants.

Members are recognised by their session, by their parents, and by a token in their environment, which also a process
keeps that forked twice and created its own session.
"""

from __future__ import annotations

import ctypes
import os
import signal
from contextlib import suppress
from typing import Dict, Iterable, List, NamedTuple, Optional, Set

TOKEN_VARIABLE = "DRIPLE_STARTED_AS"

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_libc = ctypes.CDLL(None)


class Process(NamedTuple):
    """An entry of the process table."""

    parent: int
    session: int
    start: int  # in clock ticks since boot: distinguishes two processes with the same number
    dead: bool  # whether it is a zombie: ended with all its threads, but not reaped


def process(pid: int) -> Optional[Process]:
    """One process; None if it does not exist."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        words = os.read(fd, 4096).rpartition(b")")[2].split()
    except OSError:  # it has just ended
        return None
    finally:
        os.close(fd)
    dead = words[0] in (b"Z", b"X") and int(words[17]) <= 1  # the first thread may end before the others
    return Process(int(words[1]), int(words[3]), int(words[19]), dead)


def processes() -> Dict[int, Process]:
    """All visible processes."""
    found = {int(name): process(int(name)) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208
    return {pid: one for pid, one in found.items() if one is not None}


def token_of(pid: int) -> Optional[str]:
    """The token in the environment of a process, if we may read it."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as stream:  # noqa: PTH123
            head, found, rest = (b"\0" + stream.read()).partition(f"\0{TOKEN_VARIABLE}=".encode())
    except OSError:
        return None
    return rest.partition(b"\0")[0].decode("ascii", "replace") if found else None


def descendants(table: Dict[int, Process], roots: Iterable[int]) -> Set[int]:
    """The roots and their descendants, by parents."""
    children: Dict[int, List[int]] = {}
    for pid, one in table.items():
        children.setdefault(one.parent, []).append(pid)
    found: Set[int] = set()
    new = list(roots)
    while new:
        pid = new.pop()
        if pid not in found:
            found.add(pid)
            new += children.get(pid, ())
    return found


class Family(NamedTuple):
    """A process that we started and its descendants."""

    pid: int
    start: int
    token: str = ""

    def members(self, table: Dict[int, Process]) -> Set[int]:
        me = os.getpid()
        head = table.get(self.pid)
        roots = set()
        if head is None or head.start == self.start:  # else the number was reused, also for the session
            roots = {pid for pid, one in table.items() if one.session == self.pid or pid == self.pid}
        if self.token:  # orphans become our children: see adopt_orphans
            roots |= {pid for pid, one in table.items() if one.parent == me and token_of(pid) == self.token}
        return {pid for pid in descendants(table, roots) if pid in table and not table[pid].dead} - {me}


def kill(pids: Iterable[int]) -> None:
    """Sends SIGKILL to all; ignores those that are gone or not ours to kill."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def adopt_orphans() -> None:
    """Makes us, and not init, the parent of every descendant whose parent ends."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with(parent: int) -> None:
    """In a child: makes the kernel kill it when its parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before the call
        os._exit(1)
