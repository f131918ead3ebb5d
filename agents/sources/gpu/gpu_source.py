"""The GPU source: utilisation through the driver's buffered samples, and plain readings.

NVML offers utilisation in two ways. The gauge (`nvmlDeviceGetUtilizationRates`) is an average over a window of 1/6 s
to 1 s: a burst of 200 ms is lost in it. The buffered samples (`nvmlDeviceGetSamples`) are what the driver measured in
between, each with a stamp of its own, and with them a square wave of 200/300 ms comes back exactly. So the samples are
what we record, at their own times and not at ours, and the gauge answers only where there are none.

A sample is the average over the period that ends at its stamp. No sample is repeated: where the device was silent and
the gauge did not show it idle, the trace has no value; `sample_period_ms` is the time for which a sample counts.
"""

from __future__ import annotations

import logging
import time
from bisect import bisect_left, bisect_right
from typing import Any, Callable, Dict, List, MutableSequence, Optional, Sequence, Set, Tuple

from driple.agents.sources.base import Late, Value, nth, period_in_ticks
from driple.agents.sources.gpu.base import COLUMNS, COUNTS, SILENT, UTILISATION, Gauge, GpuDevice, Lost, SampleBuffer
from driple.agents.sources.gpu.registry import open_gpu
from driple.agents.sources.gpu.sample_clock import Stamps
from driple.agents.sources.gpu.sample_gaps import GAUGE_NS, SampleGap

log = logging.getLogger(__name__)

PLAIN_READ_HZ = 5.0
"""Rate at which the buffers are emptied and the plain columns read. Buffers hold 100 samples or more, seconds of a real
device; a read is 0.1 to 0.25 ms of CPU when the caches are cold, as they are in a loop that mostly sleeps."""
GAUGE_READ_HZ = 50.0
"""The gauge changes six times a second at most: this places its edges to 20 ms, and more would place them no better."""
SPAN_SHARE = 4
"""A buffer is emptied at least so many times in the time that it spans, so that a late tick loses nothing."""


Row = Tuple[int, Value, Value]  # monotonic ns, GPU utilisation, memory utilisation


def refuse(value: float) -> bool:
    """Whether a utilisation is invalid. Drivers have reported 900 %, and one such value moves every threshold."""
    return not 0 <= value <= 100


def combine(times: Sequence[Sequence[int]], values: Sequence[Sequence[Value]]) -> List[Row]:
    """The two kinds of samples side by side, by their times; None where only one of them has that time."""
    if times[0] == times[1]:  # as drivers do it
        return list(zip(times[0], *values))
    first: List[Row] = [(t, value, None) for t, value in zip(times[0], values[0])]
    second: List[Row] = [(t, None, value) for t, value in zip(times[1], values[1])]
    return merge(first, second)


def merge(held: List[Row], new: List[Row]) -> List[Row]:
    """Rows in the order of their times; what one of two rows of a time lacks, the other gives."""
    if not held or not new or held[-1][0] < new[0][0]:
        return held + new
    found: Dict[int, Row] = {}
    for t, gpu, memory in held + new:
        _, other_gpu, other_memory = found.get(t, (t, None, None))
        found[t] = (t, other_gpu if gpu is None else gpu, other_memory if memory is None else memory)
    return [found[t] for t in sorted(found)]


class GpuSource:
    """One GPU: utilisation by its own samples through `extra`, everything else in the row of the tick."""

    def __init__(self, wanted: str, position: int, hz: float) -> None:
        """`wanted` is an index or UUID, `position` the place among the GPUs of the trace, `hz` the rate of the loop."""
        self.name = f"gpu{position}"
        self.columns: Sequence[str] = nth(COLUMNS, position)
        self.period_ticks = 1
        self._wanted, self._hz = wanted, hz
        self._device: Optional[GpuDevice] = None
        self._facts: Dict[str, Any] = {"wanted": wanted}
        self._gauge: Optional[Gauge] = None
        self._buffers: List[Optional[SampleBuffer]] = [None, None]
        self._readings: List[Tuple[int, Callable[[], int], Callable[[], int]]] = []
        self._absent: List[str] = []
        self._stamps = Stamps(0)
        self._lost_ns: Optional[int] = None
        self._reads, self._plain_every = 0, 1
        self._pending: List[Row] = []
        self._horizon_ns = 0
        self._sent_ns = 0
        self._patience_ns = int(1.5e9 / PLAIN_READ_HZ)
        self._displaced = 0
        self._gaps = [SampleGap(), SampleGap()]
        self._late: List[Late] = []
        self._refused = self._errors = self._dry = self._gauge_reads = self._filled = 0
        self._first_error = ""

    def open(self) -> None:
        self._device = device = open_gpu(self._wanted)
        self._facts.update(device.facts)
        self._gauge, readings = device.gauge, device.readings
        now_ns = time.monotonic_ns()
        self._sent_ns = self._horizon_ns = now_ns
        self._stamps = Stamps(now_ns)
        self._buffers = device.buffers(self._stamps, now_ns)
        for slot, column in enumerate(COLUMNS):
            if column in readings:
                self._readings.append((slot, *readings[column]))
            elif slot >= UTILISATION or (self._buffers[slot] is None and self._gauge is None):
                self._absent.append(column)
        if self._absent:
            mig = " (it is in MIG mode)" if self._facts.get("mig") else ""
            log.warning("%s: the device does not report %s%s; null", self.name, ", ".join(self._absent), mig)
        self._set_period()

    def read(self, t_mono_ns: int, row: MutableSequence[Value], at: int) -> None:
        if self._lost_ns is not None:
            return
        try:
            if self._reads % self._plain_every == 0:
                for slot, call, take in self._readings:
                    code = call()
                    if code == 0:
                        row[at + slot] = take()
                    else:
                        self._failed(code)
                self._empty(t_mono_ns)
            self._reads += 1
            if self._buffers[0] is None or self._buffers[1] is None:
                gpu, memory = self._ask_gauge()
                if self._buffers[0] is None:
                    row[at] = gpu
                if self._buffers[1] is None:
                    row[at + 1] = memory
        except Lost:
            self._lost_ns = t_mono_ns
            row[at : at + len(COLUMNS)] = [None] * len(COLUMNS)
            self._release(flush=True)
            log.warning("%s: the device is lost; null from here on", self.name)

    def extra(self, last: bool = False) -> Sequence[Late]:
        if last and self._device is not None and self._lost_ns is None:
            try:
                for _ in range(8):  # a driver may give less than it has
                    if not self._empty(time.monotonic_ns()):
                        break
            except Lost:
                self._lost_ns = time.monotonic_ns()
            self._release(flush=True)
        if not self._late:
            return ()
        late, self._late = self._late, []
        return late

    def quality(self) -> Dict[str, Any]:
        buffers = [buffer for buffer in self._buffers if buffer is not None]
        diffs = sorted(diff for buffer in buffers for diff in buffer.diffs_us)
        periods = {
            f"{label}_ms": diffs[min(len(diffs) - 1, int(share * len(diffs)))] / 1000
            for label, share in (("median", 0.5), ("p95", 0.95), ("p99", 0.99))
            if diffs
        }
        return {
            **self._facts,
            "method": {column: self._method(slot) for slot, column in enumerate(COLUMNS[:UTILISATION])},
            "sample_period_ms": periods or None,
            "sample_clock": self._stamps.clock or None,
            "sample_clock_error_ms": None if self._stamps.error_ns is None else round(self._stamps.error_ns / 1e6, 3),
            "clock_steps": self._stamps.steps,
            "buffer": max((buffer.capacity for buffer in buffers), default=0),
            **{key: sum(buffer.counts[key] for buffer in buffers) for key in COUNTS if key != "errors"},
            "dry_reads": self._dry,
            "gauge_reads": self._gauge_reads,
            "filled": self._filled,
            "displaced": self._displaced,
            "refused": self._refused,
            "errors": self._errors + sum(buffer.counts["errors"] for buffer in buffers),
            "first_error": self._first_error or None,
            "absent": list(self._absent),
            "lost_at_mono_ns": self._lost_ns,
        }

    def close(self) -> None:
        if self._device is not None:
            self._device.close()
            self._device = None

    def _set_period(self) -> None:
        buffers = [buffer for buffer in self._buffers if buffer is not None]
        if len(buffers) < UTILISATION and self._gauge is not None:
            self.period_ticks = period_in_ticks(self._hz, min(self._hz, GAUGE_READ_HZ))
            self._plain_every = period_in_ticks(self._hz / self.period_ticks, PLAIN_READ_HZ)
            return
        spans = [buffer.span_s() for buffer in buffers if buffer.span_s()]
        wanted_hz = max([PLAIN_READ_HZ, *(SPAN_SHARE / span for span in spans)])
        self.period_ticks = period_in_ticks(self._hz, min(self._hz, wanted_hz))
        if spans and self.period_ticks / self._hz > min(spans):
            log.warning(
                "%s: the device keeps %.1f s of samples and is read every %.1f s, so some are lost; raise --hz",
                self.name, min(spans), self.period_ticks / self._hz,
            )  # fmt: skip

    def _method(self, slot: int) -> Optional[str]:
        if self._buffers[slot] is not None:
            return "samples"
        return "gauge" if self._gauge is not None else None

    def _failed(self, code: int) -> None:
        """Counts a call that failed; the slot stays None for this tick."""
        assert self._device is not None
        if code in self._device.lost_codes:
            raise Lost
        self._errors += 1
        if not self._first_error:
            self._first_error = f"{self._device.library} code {code}"
            log.warning("%s: a reading failed with %s; null where that happens", self.name, self._first_error)

    def _checked(self, values: Sequence[float]) -> List[Value]:
        """Replaces invalid values by None, and counts them."""
        checked: List[Value] = [None if refuse(value) else value for value in values]
        self._refused += checked.count(None)
        return checked

    def _ask_gauge(self) -> Sequence[Value]:
        if self._gauge is None:
            return None, None
        code = self._gauge.call()
        if code != 0:
            self._failed(code)
            return None, None
        self._gauge_reads += 1
        return self._checked(self._gauge.take())

    def _empty(self, now_ns: int) -> bool:
        """Takes what the buffers have. Returns whether there was anything."""
        self._release()
        times: List[List[int]] = [[], []]
        values: List[List[Value]] = [[], []]
        dry = [False, False]
        came = False
        too_late: Set[int] = set()
        was_set = self._stamps.follow(now_ns)
        for slot, buffer in enumerate(self._buffers):
            if buffer is not None:
                if was_set:
                    buffer.forget()
                since_ns = buffer.newest_ns
                times[slot], found = buffer.fetch(now_ns)
                values[slot] = self._checked(found)
                came = came or bool(found)
                # Of a device whose period is not known nobody can tell so soon.
                dry[slot] = not found and buffer.is_dry(now_ns, 0 if buffer.period_us else self._patience_ns)
                too_late.update(self._fill(slot, buffer, since_ns, now_ns, times[slot], values[slot]))
        self._displaced += len(too_late)
        self._pending = merge(self._pending, combine(times, values))
        if any(dry):
            # An idle device can stop to fill its buffer, and silence is not idleness: ask the gauge what it is.
            self._dry += 1
            for gap, buffer, is_dry, said in zip(self._gaps, self._buffers, dry, self._ask_gauge()):
                if is_dry and buffer is not None and said is not None:
                    gap.look(now_ns, buffer.newest_ns, said)
        return came

    def _fill(
        self, slot: int, buffer: SampleBuffer, since_ns: int, now_ns: int, times: List[int], values: List[Value]
    ) -> Sequence[int]:
        """Puts what the gauge said of a gap before the samples that ended it, or alone once it is sure to be one.

        The gauge's answers wait: if samples of that time turn up after all, they know better. It is sure when the
        silence was longer than our patience, and one more read brought nothing. Returns the times of samples that came
        after that all the same, and are left out.
        """
        gap, period_ns = self._gaps[slot], buffer.period_us * 1000
        start_ns = max(since_ns, self._sent_ns)
        known: List[Tuple[int, float]] = []
        too_late: List[int] = []
        if times:
            if times[0] <= max(self._sent_ns, gap.settled_ns):
                # We took for dry what was only slow: this driver shows samples in larger portions. Wait longer now.
                self._patience_ns = max(self._patience_ns, 2 * (now_ns - times[0]))
            gap.hear(values)
            silent = len(times) < buffer.capacity  # or what it said is gone: the buffer was full
            missed = silent and not gap.looks and times[0] - since_ns > SILENT * period_ns > 0
            if missed and now_ns - times[0] < 2 * GAUGE_NS:
                said = self._ask_gauge()[slot]  # its window may still reach back to what was not looked into in time
                if said is not None:
                    gap.look(now_ns, now_ns, said)
            known = gap.close(start_ns, period_ns, times[0], silent)
            too_late = times[: bisect_right(times, gap.settled_ns)]
            del times[: len(too_late)], values[: len(too_late)]
        elif gap.looks and gap.looks[-1][0] - since_ns > self._patience_ns:
            known = gap.settle(start_ns, period_ns)
        self._filled += len(known)
        times[:0] = [t for t, _ in known]
        values[:0] = [value for _, value in known]
        return too_late

    def _release(self, flush: bool = False) -> None:
        """Hands out what was held back since the last read.

        Samples wait for one read, as the two kinds need not appear together and their times must not go back; and
        where a gap of one kind may yet be filled, what the other kind said of that time waits with it.
        """
        until_ns = self._horizon_ns
        for slot, (gap, buffer) in enumerate(zip(self._gaps, self._buffers)):
            if buffer is None or not gap.looks:
                continue
            if flush:
                known = gap.settle(max(buffer.newest_ns, self._sent_ns), buffer.period_us * 1000)
                self._filled += len(known)
                rows: List[Row] = [(t, None, value) if slot else (t, value, None) for t, value in known]
                self._pending = merge(self._pending, rows)
            else:
                until_ns = min(until_ns, max(buffer.newest_ns, gap.settled_ns))
        pending = self._pending
        if pending:
            ready = len(pending) if flush else bisect_left(pending, (until_ns + 1,))
            self._horizon_ns = pending[-1][0]
            for row in pending[:ready]:
                self._send(row)
            del pending[:ready]

    def _send(self, row: Row) -> None:
        t, gpu, memory = row
        if t <= self._sent_ns:
            self._displaced += 1
        elif not (gpu is None and memory is None):
            self._late.append((t, (gpu, memory, None, None, None, None)))
            self._sent_ns = t
