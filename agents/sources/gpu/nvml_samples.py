"""NVML's buffered samples of a GPU. A sample is the average over the period that ends at its stamp."""

from __future__ import annotations

import ctypes
from collections import deque
from typing import Any, Deque, List, Sequence, Tuple

from driple.agents.sources.gpu.base import COUNTS, SILENT, Lost
from driple.agents.sources.gpu.nvml import CODES, Nvml, answer
from driple.agents.sources.gpu.sample_clock import STEP_NS, Stamps

_FORMATS = {0: "d", 1: "I", 2: "L", 3: "Q", 4: "q", 5: "i", 6: "H"}  # nvmlValueType_t to memoryview's letters


class Buffer:
    """The driver's buffered samples of one kind, each with the time at which the device took it."""

    def __init__(self, nvml: Nvml, handle: Any, kind: int, stamps: Stamps) -> None:
        self._py, self._dates = nvml.py, stamps
        self._function = nvml.function("nvmlDeviceGetSamples")
        self._handle, self._kind = handle, ctypes.c_uint(kind)
        self._last, self._type, self._count = ctypes.c_ulonglong(0), ctypes.c_uint(0), ctypes.c_uint(0)
        self._by_type, self._by_count = ctypes.byref(self._type), ctypes.byref(self._count)
        self._opened_ns = 0
        self.newest_ns = 0  # monotonic time of the newest sample that was handed out; before the first, of `open`
        self.capacity = 0
        self.diffs_us: Deque[int] = deque(maxlen=256)
        self.period_us = 0  # median time between two samples, 0 until known
        self._fetches = 0
        self._was_set = False
        self.counts = dict.fromkeys(COUNTS, 0)

    def open(self, now_ns: int) -> int:
        """Empties the buffer, whose content is older than the trace. Returns NVML's code."""
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
        """New samples: monotonic times in ns, oldest first, and their values. Raises Lost if the device is gone."""
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
        """New samples of the last call, in the order of time."""
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
