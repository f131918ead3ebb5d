"""The process tree of a task: its members, the CPU time that it has used, and its resident memory.

CPU time is read through each process's CPU clock, which counts all of its threads and costs half a microsecond. New
children are found without listing /proc: pids are given out in order, and /proc/loadavg names the last one, so only
pids that are new since the last look are looked at.

Rules for CPU time: every process counts from its start, and nothing counts twice.

1. A process in the tree counts by its own clock as long as that can be read: until its parent has waited for it
   (or no wait was needed).
2. When it is gone, its last known time is kept, and so is what it had waited for.
3. A parent has the time of all children that it waited for, known or not, in its cutime and cstime. What these grow by
   beyond the known children that ended (rule 2) is time of children that were never seen, and is added. This is done at
   every look at which processes have come or gone, at `open`, so that old time is no step later, and at `settle`. What
   a known child used after its last reading comes in the same way.
4. Where the growth is less than what known children had used, these were not waited for: their parent owes nothing any
   more, but for the rounding of cutime and cstime. So what one child had can never hide what another one used.
5. The first process has no parent in the tree. If it is a child of this very process, we have waited for it ourselves
   and get the rest of its time from that; if not, the time of children unseen since the last look is lost.

So the figure lags by a look, and is exact to the two units of 10 ms in which a parent's figures are given. It is a
lower bound if a parent does not wait for its children (SIGCHLD ignored, SA_NOCLDWAIT): the time of those that no look
saw is lost. `lower_bound` is set where this may have happened.
"""

from __future__ import annotations

import os
import resource
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Dict, List, Optional, Set, Tuple

from driple.contracts.errors import BadInput

# Opening the file of one new process costs 10 us and more. Where many start at once, the rest waits for the next look.
_OPENED_AT_ONCE = 16
_STORM = 4096  # more new pids than this in a tenth of a second: going through all processes is cheaper
# Files of so many processes are kept open; those of the others are opened each time.
_KEPT_FILES = 64
_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
# cutime and cstime are each rounded down, so a parent shows up to this much less than it was given.
_ROUNDING_NS = 2 * _TICK_NS
_SIGCHLD_BIT = 1 << (signal.SIGCHLD - 1)


def cpu_clock(pid: int) -> int:
    """The clock id of a process's CPU time, as the kernel composes it (MAKE_PROCESS_CPUCLOCK)."""
    return (~pid << 3) | 2


class Stat:
    """The fields of /proc/PID/stat that we use."""

    def __init__(self, data: bytes) -> None:
        words = data[data.rindex(b")") + 2 :].split()  # the name before it may hold blanks and brackets
        self.state = words[0]
        self.parent = int(words[1])
        self.children_ns = (int(words[13]) + int(words[14])) * _TICK_NS
        """CPU time of children that were waited for, with that of their children."""
        self.threads = int(words[17])
        self.lets_go = bool(int(words[30]) & _SIGCHLD_BIT)
        """Whether it ignores SIGCHLD: the time of its children is then lost."""

    @classmethod
    def of(cls, pid: int) -> Stat:
        """Reads it by pid. Raises OSError if there is no such process."""
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return cls(os.read(fd, 1024))
        finally:
            os.close(fd)

    @property
    def over(self) -> bool:
        """Whether it has ended and only waits to be collected. A leader may end before its other threads do."""
        return self.state in b"ZX" and self.threads <= 1


class _Member:
    """Data about a process of the tree, except its clock."""

    __slots__ = ("parent", "waited_ns", "owed_ns")

    def __init__(self, parent: int) -> None:
        self.parent = parent
        self.waited_ns = 0
        """The counted part of its cutime and cstime. Zero at first: earlier children belong to the tree too."""
        self.owed_ns = 0  # time of known children that are gone, not yet part of its cutime and cstime


class ProcessTree:
    """A process and its descendants, as long as any of them is seen."""

    def __init__(self, root: int = 0) -> None:
        self.root = root  # the pid of the task, to be set before `open`
        self.lost_track = 0  # new pids that were too many to look at one by one
        self.unseen_ns = 0  # CPU time since `open` that is known from parents alone; it comes in steps, look by look
        self.lower_bound = False  # whether there may be CPU time that nobody can know of
        self._members: Dict[int, _Member] = {}
        # Clocks and their last values, in the order of the members: two lists are the cheapest to go through.
        self._clocks: List[int] = []
        self._used: List[int] = []
        self._kept_ns = 0
        self._shown_ns = 0
        self._heirs: Dict[int, int] = {}
        self._ourselves: Optional[_Member] = None
        self._queue: List[int] = []
        self._again: List[int] = []
        self._newest = 0
        self._loadavg = -1
        self._files: Dict[Tuple[int, str], int] = {}
        self._stirred = False

    def open(self) -> None:
        """Reads the tree as it is now. Raises BadInput if there is no such process."""
        try:
            time.clock_gettime_ns(cpu_clock(self.root))
            stat = Stat(self._file(self.root, "stat"))
        except (OSError, ValueError, OverflowError):
            raise BadInput(_no_process(self.root)) from None
        self._loadavg = os.open("/proc/loadavg", os.O_RDONLY | os.O_CLOEXEC)
        self._newest = self._newest_pid()
        self._admit(self.root, stat.parent)
        if stat.parent == os.getpid():
            self._ourselves = _Member(0)
        self._list_all()
        self._reconcile()
        self.unseen_ns = 0
        self.lower_bound = False

    def close(self) -> None:
        for fd in self._files.values():
            os.close(fd)
        self._files = {}
        if self._loadavg >= 0:
            os.close(self._loadavg)
            self._loadavg = -1

    @property
    def pids(self) -> List[int]:
        return list(self._members)

    @property
    def size(self) -> int:
        return len(self._members)

    def cpu_ns(self) -> int:
        """CPU time of the tree, those that ended included. Never falls."""
        read = time.clock_gettime_ns
        try:
            used = list(map(read, self._clocks))
            total = self._kept_ns + sum(used)
        except OSError:
            total = -1
        if total >= self._shown_ns:
            self._used = used
            self._shown_ns = total
            return total
        # A process is gone; or a clock fell, because its pid was reused.
        self._bury()
        if self._ourselves is not None and self.root not in self._members:
            self._reconcile()  # there may be no other look
        self._shown_ns = max(self._shown_ns, self._kept_ns + sum(self._used))
        return self._shown_ns

    def rss_bytes(self) -> Optional[int]:
        """Resident memory of the tree, pages shared by several processes counted in each; None if none can be read."""
        pages: Optional[int] = None
        for pid in self._members:
            with suppress(OSError, ValueError, IndexError):
                pages = (pages or 0) + int(self._file(pid, "statm").split(None, 2)[1])
        return pages * _PAGE if pages else None  # one that has ended and was not waited for yet holds none

    def look(self) -> None:
        """Finds new children, and the time of those that came and went unseen. To be called some ten times a second."""
        newest = self._newest_pid()
        first_new = self._newest + 1
        if newest != self._newest:
            if newest - self._newest > 0 and newest - self._newest + len(self._queue) <= _STORM:
                self._queue.extend(range(first_new, newest + 1))
            else:  # pids began again from the bottom, or too many: look at everyone once
                self.lost_track += len(self._queue)
                self._queue.clear()
                self._list_all()
            self._newest = newest
            self._stirred = True
        if self._queue or self._again:
            self._consider_new(first_new)
        if self._stirred:
            self._reconcile()
            # Of those that were not looked at yet, any may be a child that its parent waits for before the next look.
            self._stirred = bool(self._queue or self._again)

    def settle(self) -> None:
        """The last look, after which `cpu_ns` is final. To be called at the stop, before `close`."""
        if self._loadavg >= 0:
            self._stirred = True
            self.look()

    def ended(self) -> bool:
        try:
            # By kept files, which never become those of another process with the same number. One that has ended has
            # no memory any more; only then is the file read that costs ten times as much, more with many threads.
            return self._file(self.root, "statm").startswith(b"0 ") and Stat(self._file(self.root, "stat")).over
        except (OSError, ValueError):
            return True

    def sockets(self) -> Set[int]:
        inodes: Set[int] = set()
        for pid in self._members:
            with suppress(OSError):
                for entry in os.scandir(f"/proc/{pid}/fd"):
                    with suppress(OSError, ValueError):
                        target = os.readlink(entry.path)
                        if target.startswith("socket:["):
                            inodes.add(int(target[8:-1]))
        return inodes

    def _newest_pid(self) -> int:
        return int(os.pread(self._loadavg, 128, 0).split()[-1])

    def _admit(self, pid: int, parent: int) -> None:
        clock = cpu_clock(pid)
        try:
            used = time.clock_gettime_ns(clock)
        except OSError:  # over already, or the number of a thread
            return
        self._members[pid] = _Member(parent)
        self._clocks.append(clock)
        self._used.append(used)

    def _consider_new(self, first_new: int) -> None:
        opened = done = 0
        before, self._again = self._again, []
        for pid in before + self._queue:
            done += 1
            try:
                # Threads, and those that are over again, have no such clock: a tenth of the cost of a missing file.
                time.clock_gettime_ns(cpu_clock(pid))
            except OSError:
                if pid >= first_new:  # a number is given out some time before its process can be seen
                    self._again.append(pid)
                continue
            with suppress(OSError, ValueError):
                if pid not in self._members:
                    parent = Stat.of(pid).parent
                    if parent in self._members:
                        self._admit(pid, parent)
            opened += 1
            if opened >= _OPENED_AT_ONCE:
                break
        self._again += before[done:]
        del self._queue[: max(0, done - len(before))]

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
        ahead = list(self._members)
        while ahead:
            parent = ahead.pop()
            for pid in children.get(parent, ()):
                if pid not in self._members:
                    self._admit(pid, parent)
                    ahead.append(pid)

    def _bury(self) -> None:
        """Keeps the last known CPU time of processes that are gone (rule 2), and the parent that will report it."""
        members = self._members
        dead: List[Tuple[int, _Member, int]] = []
        clocks: List[int] = []
        used: List[int] = []
        for pid, clock, last in zip(list(members), self._clocks, self._used):
            try:
                now = time.clock_gettime_ns(clock)
            except OSError:
                now = -1
            if now >= last:
                clocks.append(clock)
                used.append(now)
                continue
            dead.append((pid, members.pop(pid), last))
            for name in ("stat", "statm"):
                fd = self._files.pop((pid, name), None)
                if fd is not None:
                    os.close(fd)
        self._clocks, self._used = clocks, used
        if not dead:
            return
        self._stirred = True
        for pid, member, _ in dead:
            self._heirs[pid] = member.parent
        for _, member, last in dead:
            self._kept_ns += last
            debtor = self._debtor(member.parent)
            if debtor is not None:
                # Whoever waited for it was given its own time, and all that it had been given itself.
                debtor.owed_ns += last + member.waited_ns + member.owed_ns

    def _debtor(self, pid: int) -> Optional[_Member]:
        """The process that has the time of a child of `pid`: `pid`, or the one that waited for it."""
        for _ in range(len(self._heirs)):  # not for ever: numbers that are used again could lead in a circle
            if pid not in self._heirs:
                break
            pid = self._heirs[pid]
        member = self._members.get(pid)
        return self._ourselves if member is None and pid == os.getpid() else member

    def _reconcile(self) -> None:
        """Adds the time of unseen children, which their parents have (rules 3 and 4).

        In this order, or a child that ends meanwhile counts twice: first what the parents have, then who is gone.
        Of one who is found gone only now it is not known whether its parent's figure was read before or after.
        """
        found: List[Tuple[_Member, Stat, int]] = []
        for pid, member in self._members.items():
            with suppress(OSError, ValueError, IndexError):
                stat = Stat(self._file(pid, "stat"))
                member.parent = stat.parent
                found.append((member, stat, member.owed_ns))
        stale = list(self._heirs)
        self._bury()
        for pid in stale:  # all that live have named their present parents above
            del self._heirs[pid]
        alive = set(map(id, self._members.values()))
        for member, stat, due in found:
            if id(member) in alive:  # else its parent has all that it had
                self.lower_bound |= stat.lets_go
                self._collect(member, stat.children_ns, due)
        if self._ourselves is not None:
            self._collect_root(self._ourselves)

    def _collect(self, member: _Member, waited_ns: int, due: int) -> None:
        """Compares the growth of a parent's time with that of its known children; `due` must be part of it by now."""
        growth = waited_ns - member.waited_ns
        member.waited_ns = waited_ns
        missing = due - growth
        if missing > _ROUNDING_NS:
            self.lower_bound = True
            member.owed_ns -= missing - _ROUNDING_NS
        unseen = growth - member.owed_ns
        member.owed_ns = max(0, member.owed_ns - growth)
        if unseen > 0:
            self._kept_ns += unseen
            self.unseen_ns += unseen

    def _collect_root(self, ourselves: _Member) -> None:
        """The rest of the time of a first process that we have waited for ourselves (rule 5)."""
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        waited_ns = int((usage.ru_utime + usage.ru_stime) * 1e9)
        if self.root in self._members:
            ourselves.waited_ns = waited_ns  # of other children of ours, which are none of the tree
        else:
            self._collect(ourselves, waited_ns, 0)
            self._ourselves = None


def _no_process(pid: int) -> str:
    owner = _process_of_thread(pid)
    if owner is not None:
        return f"--pid {pid}: a thread of process {owner}; expected a process"
    pids = _all_pids()
    newest = max(pids, default=0)
    return f"--pid {pid}: no such process; expected one of the {len(pids)} that run here (the newest is {newest})"


def _process_of_thread(pid: int) -> Optional[int]:
    with suppress(OSError, ValueError), Path(f"/proc/{pid}/status").open("rb") as stream:
        for line in stream:
            if line.startswith(b"Tgid:") and int(line.split()[1]) != pid:
                return int(line.split()[1])
    return None


def _all_pids() -> List[int]:
    return [int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit()]
