"""CPU time and memory of the whole host, from /proc. Read slowly: the kernel counts here in 1/100 s."""

from __future__ import annotations

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any, Dict, MutableSequence, Optional, Sequence

from driple.agents.sources.base import Source, Value, affordable_period, period_in_ticks
from driple.contracts.errors import BadInput

log = logging.getLogger(__name__)

COLUMNS = ("host_cpu_busy_ns", "host_mem_used_bytes")
PROC = Path("/proc")
_HZ = 5.0
# /proc/stat grows with processors and interrupts, to a millisecond and more. The rate falls until reading takes at most
# this share of the time, down to one read a second.
_MAX_SHARE = 0.002


class HostSource(Source):
    """Busy time of all processors together, and memory that is not available to a new program."""

    name = "host"
    columns: Sequence[str] = COLUMNS

    def __init__(self, hz: float, proc: Path = PROC) -> None:
        self._hz = hz
        self.period_ticks = period_in_ticks(hz, _HZ)
        self._proc = proc
        self._stat = self._meminfo = -1
        self._tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        self._failures = 0
        self._stolen_ns = self._stolen_before_ns = 0

    def open(self) -> None:
        try:
            self._stat = os.open(self._proc / "stat", os.O_RDONLY | os.O_CLOEXEC)
            self._meminfo = os.open(self._proc / "meminfo", os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise BadInput(f"host: {error.strerror}: {error.filename}") from None
        self.period_ticks = affordable_period(self._hz, _HZ, lambda: self.read(0, [None, None], 0), _MAX_SHARE)
        self._stolen_before_ns = self._stolen_ns

    def read(self, t_mono_ns: int, row: MutableSequence[Value], at: int) -> None:
        try:
            row[at] = self._busy()
            row[at + 1] = self._used()
        except (OSError, ValueError, IndexError) as error:
            self._failures += 1
            if self._failures == 1:
                log.warning("host: %s cannot be read (%s)", self._proc, error)

    def quality(self) -> Dict[str, Any]:
        # Time in which a hypervisor ran something else in place of this host's processors. It is no fault of a sampler
        # that ticks are late or missed then, and nothing here can prevent it.
        stolen_s = round((self._stolen_ns - self._stolen_before_ns) / 1e9, 3)
        return {"processors": os.cpu_count(), "stolen_s": stolen_s, "failures": self._failures}

    def close(self) -> None:
        for fd in (self._stat, self._meminfo):
            if fd >= 0:
                with suppress(OSError):
                    os.close(fd)
        self._stat = self._meminfo = -1

    def _busy(self) -> int:
        # user nice system idle iowait irq softirq steal: waiting is not work, and guests are within user.
        words = os.pread(self._stat, 256, 0).split(None, 9)
        self._stolen_ns = int(words[8]) * self._tick_ns
        return (int(words[1]) + int(words[2]) + int(words[3]) + int(words[6]) + int(words[7])) * self._tick_ns

    def _used(self) -> Optional[int]:
        lines = os.pread(self._meminfo, 160, 0).split(b"\n", 3)
        if not lines[2].startswith(b"MemAvailable:"):
            return None
        return (int(lines[0].split()[1]) - int(lines[2].split()[1])) * 1024
