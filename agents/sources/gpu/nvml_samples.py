"""The driver's buffered samples of a GPU, and how their stamps become times of the host's monotonic clock.

A sample is the average over the period that ends at its stamp. Stamps are of the wall clock, of the time since boot,
or of a clock of the device's own; NVML does not say which, so it is found out.
"""

from __future__ import annotations

import ctypes
import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple

from driple.agents.sources.gpu.nvml import CODES, Lost, Nvml, answer

FRESH_SLACK_US = 2_000_000
"""How much older than our last look a sample may be that was not there at our last look."""
FAR_NS, FAR_PERIODS, SEEN = 50_000_000, 10, 16
"""Where even the newest of so many fetches are older than this and than so many samples, it is not the host's clock."""
AHEAD_NS = 1_000_000
"""No sample of the host's clock is from so far in the future."""
STEP_NS = 5_000_000
"""A host clock that moved so much against the monotonic one between two reads was set, not slewed."""
SLEW_NS = 100_000
"""Up to here the offset of a host clock is left as it was: two kinds of samples then meet at equal times."""
WALL_FROM_US = 10**15
"""Stamps from here on count from 1970 (this is September 2001), those below from some boot (this is 31 years)."""

SILENT = 3
"""A device that gave no sample for more than so many periods is silent."""

COUNTS = ("samples", "sample_gaps", "overruns", "misdated", "errors")
"""What is counted per buffer."""
_FORMATS = {0: "d", 1: "I", 2: "L", 3: "Q", 4: "q", 5: "i", 6: "H"}  # nvmlValueType_t to memoryview's letters


def clock_of(stamp_us: int, age_limit_us: int, now_us: Dict[str, int]) -> str:
    """Which of the host's clocks a fresh sample was stamped by.

    Args:
        stamp_us: Stamp of a sample that appeared since our last look.
        age_limit_us: How old it can be at most.
        now_us: The clocks' readings now: `mono`, `boot`, `wall`.

    Returns:
        The clock, or `device` if it agrees with none: a clock of the device's own.
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
        self.offset_ns = 0
        """What a stamp in ns lacks to the host's monotonic clock."""
        self.clock = ""
        """Which clock stamps the samples: mono, boot, wall, device; empty until a fresh one was seen."""
        self.steps = 0
        """How often the host's clock was set while we sampled."""
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


class Buffer:
    """The driver's buffered samples of one kind, each with the time at which the device took it."""

    def __init__(self, nvml: Nvml, handle: Any, kind: int, stamps: Stamps) -> None:
        self._py, self._dates = nvml.py, stamps
        self._function = nvml.function("nvmlDeviceGetSamples")
        self._handle, self._kind = handle, ctypes.c_uint(kind)
        self._last, self._type, self._count = ctypes.c_ulonglong(0), ctypes.c_uint(0), ctypes.c_uint(0)
        self._by_type, self._by_count = ctypes.byref(self._type), ctypes.byref(self._count)
        self._opened_ns = 0
        self.newest_ns = 0
        """Monotonic time of the newest sample that was handed out; before the first, of `open`."""
        self.capacity = 0
        self.diffs_us: Deque[int] = deque(maxlen=256)
        self.period_us = 0
        """Median time between two samples, 0 until known."""
        self._fetches = 0
        self._was_set = False
        self.counts = dict.fromkeys(COUNTS, 0)

    def open(self, now_ns: int) -> int:
        """Sees what is in the buffer and forgets it: it is older than the trace. Returns NVML's code."""
        code = answer(lambda: self._function(self._handle, self._kind, self._last, self._by_type, self._by_count, None))
        if code not in (0, *CODES.empty):
            return code
        self._room(self._count.value)
        self._opened_ns = self.newest_ns = now_ns
        code = answer(self._call)
        for _ in range(16):  # a driver may give less than it has
            if code != 0:
                break
            stamps, _values = self._taken()
            self._learn(stamps)
            self._last.value = stamps[-1] if stamps else self._last.value
            code = self._call() if stamps else CODES.empty[0]
        return 0 if code in CODES.empty else code

    def forget(self) -> None:
        """The host's clock was set: asks for everything next time, what does not fit after the last sample is refused.

        Asked for what is newer than a stamp of the old time, a clock that was set back would be silent until it is
        there again.
        """
        self._last.value = 0
        self._was_set = True

    def fetch(self, now_ns: int) -> Tuple[List[int], List[float]]:
        """Samples that came since the last call: monotonic times in ns, oldest first, and their values.

        Raises:
            Lost: the device is gone.
        """
        code = self._call()
        if code == CODES.small:  # a driver whose buffer grew: rare, so the price of a new place does not matter
            self._function(self._handle, self._kind, self._last, self._by_type, self._by_count, None)
            self._room(max(self._count.value, 2 * self._size))
            code = self._call()
        if code in CODES.lost:
            raise Lost
        if code != 0:
            self.counts["errors"] += code not in CODES.empty
            return [], []
        stamps, values = self._taken()
        if self._was_set:
            stamps, values = self._of_this_time(stamps, values, now_ns)
        if not stamps:
            return [], []
        self._dates.see(stamps[-1], now_ns, self.period_us, self._has_more)
        self._judge(stamps)
        offset_ns = self._dates.offset_ns
        times = [stamp * 1000 + offset_ns for stamp in stamps]
        if times[0] <= self.newest_ns or times[-1] > now_ns + STEP_NS:
            fits = [self.newest_ns < t <= now_ns + STEP_NS for t in times]
            self.counts["misdated"] += sum(t > self._opened_ns for t, fit in zip(times, fits) if not fit)
            times, values, stamps = ([x for x, fit in zip(xs, fits) if fit] for xs in (times, values, stamps))  # type: ignore[assignment]
        if times:
            self._last.value, self.newest_ns = stamps[-1], times[-1]
            self.counts["samples"] += len(times)
        return times, values

    def is_dry(self, now_ns: int, patience_ns: int) -> bool:
        """Whether samples that should be there by now are not, also of a driver that shows them late."""
        due_ns = SILENT * self.period_us * 1000 + (self._dates.error_ns or 0)
        return now_ns - self.newest_ns > max(due_ns, patience_ns)

    def span_s(self) -> float:
        """How many seconds of samples the buffer holds; 0 if not known yet."""
        return self.capacity * self.period_us / 1e6

    def _has_more(self, after_us: int) -> bool:
        """Whether the driver has samples after a stamp. What was fetched must have been taken out before."""
        last, self._last.value = self._last.value, after_us
        code = self._call()
        self._last.value = last
        return code == 0 and self._count.value > 0

    def _call(self) -> int:
        self._count.value = self._size
        return self._function(self._handle, self._kind, self._last, self._by_type, self._by_count, self._samples)

    def _room(self, capacity: int) -> None:
        """Keeps one place for all calls, larger than announced: the driver may add samples between two calls."""
        self.capacity, self._size = capacity, max(256, 2 * capacity)
        self._samples = (self._py.c_nvmlSample_t * self._size)()
        raw = memoryview(self._samples).cast("B")
        self._stamps = raw.cast("Q")[::2]
        # Each value is a union of 8 bytes, of which only the type's own are defined.
        self._values = {}
        for kind, letter in _FORMATS.items():
            view: Any = raw.cast(letter)  # type: ignore[call-overload]
            self._values[kind] = view[8 // view.itemsize :: 16 // view.itemsize]

    def _taken(self) -> Tuple[List[int], List[float]]:
        """What the last call left, in the order of time and without what was seen before."""
        count, last, kind = min(self._count.value, self._size), self._last.value, self._type.value
        if kind not in self._values:  # a type of a later NVML
            self.counts["errors"] += 1
            return [], []
        stamps, values = self._stamps[:count].tolist(), self._values[kind][:count].tolist()
        if any(b <= a for a, b in zip([last, *stamps], stamps)):
            pairs = sorted({stamp: value for stamp, value in zip(stamps, values) if stamp > last}.items())
            return [stamp for stamp, _ in pairs], [value for _, value in pairs]
        return stamps, values

    def _of_this_time(self, stamps: List[int], values: List[float], now_ns: int) -> Tuple[List[int], List[float]]:
        """Without what was stamped before the clock was set back, which lies ahead of it now.

        The driver gives that again and again until newer samples have taken its place. It must not be taken for a
        sign that the device has a clock of its own.
        """
        latest_us = (now_ns + STEP_NS - self._dates.offset_ns) // 1000
        fits = [stamp <= latest_us for stamp in stamps]
        self._was_set = not all(fits)
        return [s for s, fit in zip(stamps, fits) if fit], [v for v, fit in zip(values, fits) if fit]

    def _judge(self, stamps: Sequence[int]) -> None:
        """Counts what is missing in a fetch, and between it and the one before."""
        # It was full: what was there before its oldest is gone.
        self.counts["overruns"] += len(stamps) >= self.capacity > 0
        diffs = self._learn(stamps)
        if self._last.value:
            diffs.append(stamps[0] - self._last.value)
        if self.period_us and diffs and max(diffs) > 1.5 * self.period_us:
            self.counts["sample_gaps"] += sum(diff > 1.5 * self.period_us for diff in diffs)

    def _learn(self, stamps: Sequence[int]) -> List[int]:
        """Follows the period of the device, now and then: sorting costs more than all the rest of a fetch."""
        diffs = [b - a for a, b in zip(stamps, stamps[1:])]
        self.diffs_us.extend(diffs)
        self._fetches += 1
        if len(self.diffs_us) >= 2 and (not self.period_us or self._fetches % 64 == 0):
            self.period_us = sorted(self.diffs_us)[len(self.diffs_us) // 2]  # `statistics` costs 0.8 MB
        return diffs
