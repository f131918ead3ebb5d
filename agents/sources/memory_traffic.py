"""Memory traffic of a task by hardware counters, where the machine has them and lets us read them; else null.

The event is the last-level cache miss, times the cache line: what the task made the memory deliver. Virtual machines
often have no such counter, or one that stays at zero; both give nulls, never zeros and never something else instead.
"""

from __future__ import annotations

import errno
import logging
import os
import platform
import struct
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, List, MutableSequence, Optional, Sequence, Tuple

from driple.agents.sources.base import Source, Value, affordable_period, period_in_ticks
from driple.agents.sources.process_tree import ProcessTree

log = logging.getLogger(__name__)

COLUMNS = ("task_mem_traffic_bytes",)
CACHE_MISSES = (0, 3)  # PERF_TYPE_HARDWARE, PERF_COUNT_HW_CACHE_MISSES

_SYSCALL = {"x86_64": 298, "aarch64": 241, "ppc64le": 319}
_HZ = 50.0
# Reading an inherited counter walks all threads. The rate falls until reading takes at most this share of the time.
_MAX_SHARE = 0.005
_ATTRIBUTE = struct.Struct("=IIQQQQQ")
_ATTRIBUTE_SIZE = 112
_INHERIT, _EXCLUDE_KERNEL, _EXCLUDE_HYPERVISOR = 1 << 1, 1 << 5, 1 << 6
_CLOSE_ON_EXEC = 8
_COUNT = struct.Struct("=QQQ")
_TIMES = 3  # the read also gives time enabled and time counted


def open_counter(pid: int, event: Tuple[int, int], exclude_kernel: bool) -> int:
    """perf_event_open for one thread and all that it starts from now on. Raises OSError."""
    import ctypes

    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(errno.ENOSYS, f"perf_event_open on {platform.machine()}")
    flags = _INHERIT | _EXCLUDE_HYPERVISOR | (_EXCLUDE_KERNEL if exclude_kernel else 0)
    head = _ATTRIBUTE.pack(event[0], _ATTRIBUTE_SIZE, event[1], 0, 0, _TIMES, flags)
    attribute = ctypes.create_string_buffer(head, _ATTRIBUTE_SIZE)
    libc = ctypes.CDLL(None, use_errno=True)
    fd = int(libc.syscall(number, attribute, pid, -1, -1, _CLOSE_ON_EXEC))
    if fd < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return fd


class TaskCounter:
    """One hardware or software event, summed over a process tree."""

    def __init__(self, pids: Sequence[int], event: Tuple[int, int]) -> None:
        """Raises OSError if the machine has no such counter or access is denied."""
        self._fds: List[int] = []
        self.user_only = False
        threads = [int(name) for pid in pids for name in _threads(pid)]
        for thread in threads:
            try:
                self._fds.append(self._open(thread, event))
            except ProcessLookupError:
                continue  # it ended meanwhile
            except OSError:
                self.close()
                raise
        if not self._fds:
            raise OSError(errno.ESRCH, "no thread left")

    def read(self) -> Tuple[int, float]:
        """The count, and the share of time in which a hardware counter was available for it."""
        count = enabled = running = 0
        for fd in self._fds:
            one, on, counted = _COUNT.unpack(os.read(fd, _COUNT.size))
            count += one
            enabled += on
            running += counted
        return count, running / enabled if enabled else 0.0

    def close(self) -> None:
        for fd in self._fds:
            os.close(fd)
        self._fds = []

    def _open(self, thread: int, event: Tuple[int, int]) -> int:
        if not self.user_only:
            try:
                return open_counter(thread, event, exclude_kernel=False)
            except PermissionError:
                self.user_only = True
        return open_counter(thread, event, exclude_kernel=True)


class MemoryTrafficSource(Source):
    """Bytes that the task's cache misses fetched from memory."""

    name = "task_traffic"
    columns: Sequence[str] = COLUMNS

    def __init__(self, tree: ProcessTree, hz: float) -> None:
        """`tree` is opened before this source is."""
        self.period_ticks = period_in_ticks(hz, _HZ)
        self._hz = hz
        self._tree = tree
        self._line = _line_size()
        self._counter: Optional[TaskCounter] = None
        self._lacks: Optional[str] = None
        self._counted = 0.0

    def open(self) -> None:
        try:
            self._counter = TaskCounter(self._tree.pids, CACHE_MISSES)
            self.period_ticks = affordable_period(self._hz, _HZ, self._counter.read, _MAX_SHARE)
        except OSError as error:
            self._lacks = f"perf_event_open: {error.strerror or error}"
            self.period_ticks = period_in_ticks(self._hz, 1.0)
            log.info("memory traffic is null: no hardware counter (%s)", self._lacks)

    def read(self, t_mono_ns: int, row: MutableSequence[Value], at: int) -> None:
        if self._counter is None:
            return
        try:
            count, self._counted = self._counter.read()
        except OSError as error:
            self._lacks = str(error)
            log.warning("memory traffic: the hardware counter is lost (%s): nulls from here", error)
            self.close()
            return
        if count:  # some virtual machines have a counter that never counts
            row[at] = count * self._line

    def quality(self) -> Dict[str, Any]:
        if self._counter is None:
            return {"way": None, "lacks": self._lacks}
        return {
            "way": f"last-level cache misses x {self._line} B",
            "user_only": self._counter.user_only,
            "counted_share": round(self._counted, 4),
        }

    def close(self) -> None:
        if self._counter is not None:
            self._counter.close()
            self._counter = None


def _threads(pid: int) -> List[str]:
    with suppress(OSError):
        return [entry.name for entry in os.scandir(f"/proc/{pid}/task")]
    return []


def _line_size() -> int:
    with suppress(OSError, ValueError):
        return int(Path("/sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size").read_text())
    return 64
