"""Who descends from whom on this host, by /proc, and how a whole family ends: also those who left the session.

A family is a process that we started and all that came of it. Members are known by their session, by their parents,
and by a token in their environment, which a process keeps that forked twice and made a session of its own.
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
    """A line of the table of processes."""

    parent: int
    session: int
    start: int
    """In clock ticks since the machine booted: tells apart two processes of one number."""
    dead: bool
    """Whether it is a zombie: gone, with all its threads, but for its exit code."""


def process(pid: int) -> Optional[Process]:
    """One process; None if there is none."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        words = os.read(fd, 4096).rpartition(b")")[2].split()
    except OSError:  # it ended between the two
        return None
    finally:
        os.close(fd)
    dead = words[0] in (b"Z", b"X") and int(words[17]) <= 1  # the first thread may end before the others
    return Process(int(words[1]), int(words[3]), int(words[19]), dead)


def processes() -> Dict[int, Process]:
    """All processes that are seen from here."""
    found = {int(name): process(int(name)) for name in os.listdir("/proc") if name.isdigit()}  # noqa: PTH208
    return {pid: one for pid, one in found.items() if one is not None}


def token_of(pid: int) -> Optional[str]:
    """The token that a process started with, where we may read its environment."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as stream:  # noqa: PTH123
            head, found, rest = (b"\0" + stream.read()).partition(f"\0{TOKEN_VARIABLE}=".encode())
    except OSError:
        return None
    return rest.partition(b"\0")[0].decode("ascii", "replace") if found else None


def descendants(table: Dict[int, Process], roots: Iterable[int]) -> Set[int]:
    """The roots and all that came of them, as far as parents tell."""
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
    """A process that we started, as the head of its family."""

    pid: int
    start: int
    token: str = ""

    def members(self, table: Dict[int, Process]) -> Set[int]:
        """Who of the family lives."""
        me = os.getpid()
        head = table.get(self.pid)
        roots = set()
        if head is None or head.start == self.start:  # else the number is another's now, and so is the session
            roots = {pid for pid, one in table.items() if one.session == self.pid or pid == self.pid}
        if self.token:  # orphans come to us: see adopt_orphans
            roots |= {pid for pid, one in table.items() if one.parent == me and token_of(pid) == self.token}
        return {pid for pid in descendants(table, roots) if pid in table and not table[pid].dead} - {me}


def kill(pids: Iterable[int]) -> None:
    """SIGKILL to all of them; who is gone already is fine, and who is not ours to kill stays."""
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def adopt_orphans() -> None:
    """Makes us the parent of every descendant whose own parent ends, in place of init."""
    _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with(parent: int) -> None:
    """In a child: the kernel kills it when its parent ends, however that ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it ended before we asked
        os._exit(1)
