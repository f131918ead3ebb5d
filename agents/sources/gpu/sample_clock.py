"""How the stamps of a GPU's samples become times of the host's monotonic clock.

Stamps are of the wall clock, of the time since boot, or of a clock of the device itself. The driver does not report
which, so it is found out.
"""

from __future__ import annotations

import time
from typing import Callable, Dict, List, Optional

FRESH_SLACK_US = 2_000_000  # how much older than our last look a sample may be that was not there at our last look
FAR_NS, FAR_PERIODS, SEEN = 50_000_000, 10, 16
"""Where even the newest of so many fetches are older than this and than so many samples, it is not the host's clock."""
AHEAD_NS = 1_000_000  # no sample of the host's clock is from so far in the future
STEP_NS = 5_000_000  # a host clock that moved so much against the monotonic one between two reads was set, not slewed
SLEW_NS = 100_000
"""Up to here the offset of a host clock is left as it was: two kinds of samples then meet at equal times."""
WALL_FROM_US = 10**15
"""Stamps from here on count from 1970 (this is September 2001), those below from some boot (this is 31 years)."""


def clock_of(stamp_us: int, age_limit_us: int, now_us: Dict[str, int]) -> str:
    """The clock of a fresh sample: one of `now_us` (`mono`, `boot`, `wall`), or `device` if it agrees with none.

    `age_limit_us` is the greatest possible age of the sample.
    """
    for name in ("wall",) if stamp_us >= WALL_FROM_US else ("mono", "boot"):
        if -STEP_NS // 1000 <= now_us[name] - stamp_us <= age_limit_us:
            return name
    return "device"


def offset_ns(clock_id: int) -> int:
    """CLOCK_MONOTONIC minus another clock of the host: the tightest of three tries, as we may be interrupted."""
    best, offset = 0, 0
    for attempt in range(3):
        before = time.monotonic_ns()
        other = time.clock_gettime_ns(clock_id)
        width = time.monotonic_ns() - before
        if attempt == 0 or width < best:
            best, offset = width, before + width // 2 - other
        if best < 5_000:
            break
    return offset


class Stamps:
    """Takes a device's stamps to the host's monotonic clock. One for both kinds of samples: a stamp is one time."""

    def __init__(self, opened_ns: int) -> None:
        self._looked_ns = opened_ns
        self.offset_ns = 0  # difference of the host's monotonic clock and a stamp, in ns
        self.clock = ""  # which clock stamps the samples: mono, boot, wall, device; empty until a fresh one was seen
        self.steps = 0  # how often the host's clock was set while we sampled
        self.error_ns: Optional[int] = None
        """How much later than said the samples may have been taken: the shortest delay with which one came.

        A driver that shows its samples late and a device whose own clock is behind the host's look alike.
        """
        self._delays_ns: List[int] = []

    def follow(self, now_ns: int) -> bool:
        """Keeps up with the host's clock, which may be slewed or set. Call before a fetch; says if it was set."""
        self._looked_ns, self._before_ns = now_ns, self._looked_ns
        if self.clock not in ("wall", "boot"):
            return False
        moved = abs(self._host_offset_ns() - self.offset_ns)
        if moved > SLEW_NS:
            self.offset_ns = self._host_offset_ns()
        self.steps += moved > STEP_NS
        return moved > STEP_NS

    def see(
        self, newest_us: int, now_ns: int, period_us: int = 0, more: Callable[[int], bool] = lambda _: False
    ) -> None:
        """Takes note of the newest stamp of a fetch. `more` says whether the driver has samples after a stamp."""
        if not self.clock:
            now_us = {
                "mono": now_ns // 1000,
                "boot": time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000,
                "wall": time.time_ns() // 1000,
            }
            self.clock = clock_of(newest_us, (now_ns - self._before_ns) // 1000 + FRESH_SLACK_US, now_us)
            self.offset_ns = now_ns - newest_us * 1000 if self.clock == "device" else self._host_offset_ns()
        elif self.clock == "device":
            # No common clock: a sample cannot have arrived before it was taken, so the shortest delay is the truest.
            self.offset_ns = min(self.offset_ns, now_ns - newest_us * 1000)
        else:
            # A clock of the device's own may be close to the host's by chance, as one that was set by hand.
            stamped_ns = newest_us * 1000 + self.offset_ns
            delay_ns = now_ns - stamped_ns
            if delay_ns < -AHEAD_NS and time.monotonic_ns() - stamped_ns < -AHEAD_NS:  # `now_ns` is of some time ago
                self.clock, self.error_ns = "device", None
                self.offset_ns += delay_ns
                return
            self._delays_ns.append(delay_ns)
            self.error_ns = max(0, delay_ns if self.error_ns is None else min(self.error_ns, delay_ns))
            if len(self._delays_ns) >= SEEN:
                shortest, self._delays_ns = min(self._delays_ns), []
                # A driver that gives less than it has is behind without being off.
                if shortest > max(FAR_NS, FAR_PERIODS * period_us * 1000) and not more(newest_us):
                    self.clock, self.error_ns = "device", None
                    self.offset_ns += shortest

    def _host_offset_ns(self) -> int:
        if self.clock == "wall":
            return offset_ns(time.CLOCK_REALTIME)
        return offset_ns(time.CLOCK_BOOTTIME) if self.clock == "boot" else 0
