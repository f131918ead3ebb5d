"""The process tree of a task: who is in it, how much CPU time it has used, and how much memory it holds.

CPU time is read through each process's CPU clock, which counts all of its threads and costs half a microsecond. New
children are found without listing /proc: pids are given out in order, and /proc/loadavg names the last one, so only
pids that are new since the last look are looked at.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Dict, List, Optional, Set, Tuple

from driple.contracts.errors import BadInput

# Opening the file of one new process costs 10 us and more. Where many start at once, the rest waits for the next look.
_OPENED_AT_ONCE = 16
# More new pids than this in a tenth of a second: going through all processes is cheaper.
_STORM = 4096
# Files of so many processes are kept open; those of the others are opened each time.
_KEPT_FILES = 64
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def cpu_clock(pid: int) -> int:
    """The clock id of a process's CPU time, as the kernel composes it (MAKE_PROCESS_CPUCLOCK)."""
    return (~pid << 3) | 2


class Stat:
    """What /proc/PID/stat says that we use."""

    def __init__(self, data: bytes) -> None:
        words = data[data.rindex(b")") + 2 :].split()  # the name before it may hold blanks and brackets
        self.state = words[0]
        self.parent = int(words[1])
        self.children_ns = (int(words[13]) + int(words[14])) * _TICK_NS
        """CPU time of children that ended and were waited for, with theirs."""
        self.threads = int(words[17])

    @classmethod
    def of(cls, pid: int) -> Stat:
        """Of a process by number. Raises OSError when there is none."""
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return cls(os.read(fd, 1024))
        finally:
            os.close(fd)

    @property
    def over(self) -> bool:
        """Whether it has ended and only waits to be collected. A leader may end before its other threads do."""
        return self.state in b"ZX" and self.threads <= 1


class ProcessTree:
    """A process and all that came from it, as long as any of it is seen.

    Attributes:
        root: the pid of the task, to be set before `open`.
        lost_track: new pids that were too many to look at one by one.
    """

    def __init__(self, root: int = 0) -> None:
        self.root = root
        self.lost_track = 0
        self._clocks: Dict[int, int] = {}
        self._last: Dict[int, int] = {}
        self._gone_ns = 0
        self._queue: List[int] = []
        self._newest = 0
        self._loadavg = -1
        self._files: Dict[Tuple[int, str], int] = {}
        self._stirred = False

    def open(self) -> None:
        """Takes up the tree as it is now.

        Raises:
            BadInput: no such process.
        """
        try:
            time.clock_gettime_ns(cpu_clock(self.root))
            stat = Stat(self._file(self.root, "stat"))
        except (OSError, ValueError, OverflowError):
            raise BadInput(_no_process(self.root)) from None
        self._loadavg = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
        self._newest = self._newest_pid()
        self._admit(self.root)
        self._gone_ns = stat.children_ns
        self._list_all()

    def close(self) -> None:
        for fd in self._files.values():
            os.close(fd)
        self._files = {}
        if self._loadavg >= 0:
            os.close(self._loadavg)
            self._loadavg = -1

    @property
    def pids(self) -> List[int]:
        """Who is in it now."""
        return list(self._clocks)

    @property
    def size(self) -> int:
        """How many are in it now."""
        return len(self._clocks)

    def cpu_ns(self) -> int:
        """CPU time of the tree, those that ended included. Never falls."""
        total = self._gone_ns
        last = self._last
        dead = 0
        for pid, clock in self._clocks.items():
            try:
                last[pid] = used = time.clock_gettime_ns(clock)
                total += used
            except OSError:
                dead += 1
        if dead:
            self._bury()
            total = self._gone_ns + sum(last.values())
        return total

    def rss_bytes(self) -> Optional[int]:
        """Resident memory of the tree, pages shared by several processes counted in each; None if none can be read."""
        pages: Optional[int] = None
        for pid in self._clocks:
            with suppress(OSError, ValueError, IndexError):
                pages = (pages or 0) + int(self._file(pid, "statm").split(None, 2)[1])
        return None if pages is None else pages * _PAGE

    def look(self) -> None:
        """Finds new children. To be called some ten times a second."""
        newest = self._newest_pid()
        if newest != self._newest:
            if newest - self._newest > 0 and newest - self._newest + len(self._queue) <= _STORM:
                self._queue.extend(range(self._newest + 1, newest + 1))
            else:  # pids began again from the bottom, or too many: look at everyone once
                self.lost_track += len(self._queue)
                self._queue.clear()
                self._list_all()
            self._newest = newest
            self._stirred = True
        if self._queue:
            self._consider_new()
        elif self._stirred:
            self._stirred = False
            self._reconcile()

    def ended(self) -> bool:
        """Whether the task's first process is over."""
        try:
            # By the kept file, which never becomes that of another process with the same number.
            return Stat(self._file(self.root, "stat")).over
        except (OSError, ValueError):
            return True

    def sockets(self) -> Set[int]:
        """Inodes of the sockets that the tree has open."""
        inodes: Set[int] = set()
        for pid in self._clocks:
            with suppress(OSError):
                for entry in os.scandir(f"/proc/{pid}/fd"):
                    with suppress(OSError, ValueError):
                        target = os.readlink(entry.path)
                        if target.startswith("socket:["):
                            inodes.add(int(target[8:-1]))
        return inodes

    def _newest_pid(self) -> int:
        return int(os.pread(self._loadavg, 128, 0).split()[-1])

    def _admit(self, pid: int) -> None:
        clock = cpu_clock(pid)
        try:
            self._last[pid] = time.clock_gettime_ns(clock)
        except OSError:  # over already, or the number of a thread
            return
        self._clocks[pid] = clock

    def _consider_new(self) -> None:
        """Takes in those of the new pids that are children of the tree."""
        opened = done = 0
        for pid in self._queue:
            done += 1
            try:
                # Threads, and those that are over again, have no such clock: a tenth of the cost of a missing file.
                time.clock_gettime_ns(cpu_clock(pid))
            except OSError:
                continue
            with suppress(OSError, ValueError):
                if pid not in self._clocks and Stat.of(pid).parent in self._clocks:
                    self._admit(pid)
            opened += 1
            if opened >= _OPENED_AT_ONCE:
                break
        del self._queue[:done]

    def _file(self, pid: int, name: str) -> bytes:
        """A file of a process, by a kept descriptor if there is room. Raises OSError once the process is gone."""
        fd = self._files.get((pid, name))
        if fd is not None:
            return os.pread(fd, 1024, 0)
        fd = os.open(f"/proc/{pid}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        if len(self._files) < 2 * _KEPT_FILES:
            self._files[pid, name] = fd
            return os.pread(fd, 1024, 0)
        try:
            return os.read(fd, 1024)
        finally:
            os.close(fd)

    def _list_all(self) -> None:
        """Walks all processes down from those that are known."""
        children: Dict[int, List[int]] = {}
        for pid in _all_pids():
            with suppress(OSError, ValueError):
                children.setdefault(Stat.of(pid).parent, []).append(pid)
        ahead = list(self._clocks)
        while ahead:
            for pid in children.get(ahead.pop(), ()):
                if pid not in self._clocks:
                    self._admit(pid)
                    ahead.append(pid)

    def _bury(self) -> None:
        """Keeps the last known CPU time of those that are gone."""
        for pid in list(self._clocks):
            try:
                self._last[pid] = time.clock_gettime_ns(self._clocks[pid])
            except OSError:
                self._gone_ns += self._last.pop(pid)
                del self._clocks[pid]
                for name in ("stat", "statm"):
                    fd = self._files.pop((pid, name), None)
                    if fd is not None:
                        os.close(fd)
        self._stirred = True

    def _reconcile(self) -> None:
        """Adds the time of children that came and went between two looks: their parents have it, in 10 ms units.

        In this order, or a child that ends meanwhile counts twice: parents first, then who is gone, then the greater.
        """
        waited = 0
        for pid in self._clocks:
            with suppress(OSError, ValueError):
                waited += Stat(self._file(pid, "stat")).children_ns
        self._bury()
        self._stirred = False
        self._gone_ns = max(self._gone_ns, waited)


def _no_process(pid: int) -> str:
    owner = _process_of_thread(pid)
    if owner is not None:
        return f"--pid {pid}: a thread of process {owner}; expected a process"
    running, newest = _running()
    return f"--pid {pid}: no such process; expected one of the {running} that run here (the newest is {newest})"


def _process_of_thread(pid: int) -> Optional[int]:
    with suppress(OSError, ValueError), Path(f"/proc/{pid}/status").open("rb") as stream:
        for line in stream:
            if line.startswith(b"Tgid:") and int(line.split()[1]) != pid:
                return int(line.split()[1])
    return None


def _all_pids() -> List[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]


def _running() -> Tuple[int, int]:
    pids = _all_pids()
    return len(pids), max(pids, default=0)
