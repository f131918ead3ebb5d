"""Ticker: absolute deadlines on the monotonic clock, so that errors do not accumulate.

Also here: real-time priority (requested, never required) and pairs of the two clocks.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

from driple.agents.sampler.quality import Histogram

SECOND_NS = 1_000_000_000
STOPPED = -1  # returned by `Ticker.tick` in place of a time when the wait was stopped

_FIFO_PRIORITY = 10
_NICE = -10
_RECENT = 100


class Ticker:
    """Ticks at a fixed rate. A deadline that passed while nobody waited is missed and counted, never made up for."""

    def __init__(self, hz: float, wait: Callable[[float], bool], now: Callable[[], int] = time.monotonic_ns) -> None:
        """`wait` sleeps for at most that many seconds, and returns whether to stop; it may return early."""
        self.period_ns = round(SECOND_NS / hz)
        self.number = -1  # of the deadline that was last kept, from 0; missed ones have numbers too
        self.late = 0  # ticks more than half a period after their deadline
        self.missed = 0  # deadlines without a tick
        self._lateness = Histogram()
        self._recent: List[int] = []
        self._wait = wait
        self._now = now
        self._start = 0
        self.begin()

    def begin(self) -> None:
        """Makes now the first deadline, so that preparation before it does not count as missed ticks."""
        self._start = self._now()

    def tick(self) -> int:
        """Waits for the next deadline; the time at which the wait ended, or STOPPED."""
        period = self.period_ns
        number = self.number + 1
        deadline = self._start + number * period
        now = self._now()
        if now - deadline >= period:
            skipped = (now - deadline) // period
            self.missed += skipped
            number += skipped
            deadline += skipped * period
        while now < deadline:
            if self._wait((deadline - now) / SECOND_NS):
                return STOPPED
            now = self._now()
        after = now - deadline
        if after >= period:
            # The sleep itself overran: what was slept through is missed, and this tick serves the latest deadline.
            skipped = after // period
            self.missed += skipped
            number += skipped
            after -= skipped * period
        if after * 2 > period:
            self.late += 1
        # Sorted into bins in bulk: what runs once a tick runs from a cold cache, and its every call counts.
        self._recent.append(after)
        if len(self._recent) >= _RECENT:
            self._fold()
        self.number = number
        return now

    def now(self) -> int:
        return self._now()

    @property
    def kept(self) -> int:
        return self._lateness.count + len(self._recent)

    def _fold(self) -> None:
        self._lateness.extend(self._recent)
        self._recent.clear()

    def summary(self) -> Dict[str, Any]:
        self._fold()
        ticks = self._lateness.count
        return {
            "asked_period_ms": round(self.period_ns / 1e6, 4),
            "ticks": ticks,
            "late_ticks": self.late,
            "missed_ticks": self.missed,
            "missed_pct": round(100.0 * self.missed / max(1, ticks + self.missed), 4),
            "lateness_us": self._lateness.summary(1e3),
        }


def real_at(t_mono_ns: int) -> int:
    """The wall clock at a moment just past on the monotonic one: a (monotonic, realtime) pair."""
    before = time.monotonic_ns()
    real = time.time_ns()
    after = time.monotonic_ns()
    return real - ((before + after) // 2 - t_mono_ns)


def raise_priority() -> Dict[str, Any]:
    """Requests real-time priority, or else a better nice value. Returns what was obtained.

    Children do not inherit it: a wrapped training job must run as if nobody watched.
    """
    obtained: Dict[str, Any] = {"policy": "other", "nice": niceness()}
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(_FIFO_PRIORITY))
        obtained["policy"], obtained["priority"] = "fifo", _FIFO_PRIORITY
    except OSError as error:
        obtained["refused"] = f"real-time: {error.strerror}"
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, _NICE)
            os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
        obtained["nice"] = niceness()
    with suppress(OSError):
        # The kernel may otherwise wake an ordinary process 50 us late to save power. Real-time ones have no slack.
        Path("/proc/self/timerslack_ns").write_text("1000")
    return obtained


def lower_priority(nice: int) -> None:
    """Returns to normal priority, for work after the sampling, which has no deadline."""
    with suppress(OSError):
        # Only root may take back that children do not inherit it, so that stays.
        os.sched_setscheduler(0, os.SCHED_OTHER | os.SCHED_RESET_ON_FORK, os.sched_param(0))
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, nice)


def niceness() -> int:
    """Of this process."""
    return os.getpriority(os.PRIO_PROCESS, 0)


def own_usage() -> Tuple[float, int]:
    """CPU seconds of this process so far, and the most memory it ever had resident, in bytes."""
    peak = 0
    with suppress(OSError, ValueError), Path("/proc/self/status").open("rb") as stream:
        for line in stream:
            if line.startswith(b"VmHWM:"):
                peak = int(line.split()[1]) * 1024
    return time.process_time(), peak
