"""How well a source was read: asked and real periods, how often its values really change, gaps and nulls.

All of it in bounded memory whatever the duration: durations go into histograms with bins of 1/32 octave, so quantiles
are right to about 2 %.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, Dict, List, Optional, Sequence

from driple.agents.sources.base import Late, Value

# A read interval this many times the asked period is a gap. Lower would count every tick that was merely late.
GAP_PERIODS = 2.5
MIN_CHANGES = 5  # fewer changes than this say nothing about how often a value is refreshed


class Histogram:
    """Non-negative integers (ns), counted in bins that grow with the value."""

    def __init__(self) -> None:
        self._bins: Dict[int, int] = {}
        self.count = 0
        self.greatest = 0

    def add(self, value: int) -> None:
        self.extend((value,))

    def extend(self, values: Sequence[int]) -> None:
        """Many at once cost little: durations of a loop are alike, so a few bins take them all."""
        bins, ordered, at = self._bins, sorted(values), 0
        while at < len(ordered):
            value = max(0, ordered[at])
            shift = max(0, value.bit_length() - 6)
            key = (shift << 5) + (value >> shift)
            end = bisect_left(ordered, ((value >> shift) + 1) << shift, at)
            bins[key] = bins.get(key, 0) + end - at
            at = end
        if ordered:
            self.count += len(ordered)
            self.greatest = max(self.greatest, ordered[-1])

    def quantile(self, share: float) -> Optional[float]:
        """The value below which `share` of them lie; None if there are none."""
        if not self.count:
            return None
        rank = share * (self.count - 1)
        seen = 0
        for key in sorted(self._bins):
            seen += self._bins[key]
            if seen > rank:
                return min(_middle(key), float(self.greatest))
        return float(self.greatest)

    def summary(self, unit_ns: float) -> Dict[str, Optional[float]]:
        """Median, p95, p99 and maximum in units of `unit_ns`."""
        shown = {"median": self.quantile(0.5), "p95": self.quantile(0.95), "p99": self.quantile(0.99)}
        shown["max"] = float(self.greatest) if self.count else None
        return {name: _scaled(value, unit_ns) for name, value in shown.items()}


def _middle(key: int) -> float:
    if key < 64:
        return float(key)
    shift = (key >> 5) - 1
    low = ((key & 31) + 32) << shift
    return low + ((1 << shift) - 1) / 2


def _scaled(value: Optional[float], unit_ns: float) -> Optional[float]:
    return None if value is None else round(value / unit_ns, 4)


class ColumnQuality:
    """One column: how often it was null, and how often its value was another one."""

    def __init__(self) -> None:
        self.nulls = 0
        self.changes = Histogram()
        self._value: Value = None
        self._since: Optional[int] = None
        self._own = Histogram()
        self._own_last: Optional[int] = None

    def observe(self, times: Sequence[int], values: Sequence[Value]) -> None:
        nulls = values.count(None)
        self.nulls += nulls
        last, since = self._value, self._since
        if nulls + (last is not None and values.count(last)) == len(values):
            return  # nothing changed, as of most columns in most blocks
        intervals: List[int] = []
        for t, value in zip(times, values):
            if value == last or value is None:
                continue
            # Since when the first value had stood is not known, so its end gives no interval.
            if since is not None:
                intervals.append(t - since)
            if last is not None:
                since = t
            last = value
        self._value, self._since = last, since
        self.changes.extend(intervals)

    def observe_own(self, t: int) -> None:
        """A value that the device stamped itself: the times say how often it is refreshed, whatever the value."""
        if self._own_last is not None:
            self._own.add(t - self._own_last)
        self._own_last = t

    def summary(self, period_ns: Optional[float]) -> Dict[str, Any]:
        """Nulls, and the refresh period with the verdict whether the source holds its value longer than it is read."""
        shown: Dict[str, Any] = {"nulls": self.nulls, "changes": self.changes.count}
        refresh = self._own if self._own.count else self.changes
        if refresh.count < MIN_CHANGES:
            return {**shown, "refresh_ms": None, "held": None}
        shown["refresh_ms"] = _scaled(refresh.quantile(0.5), 1e6)
        # A counter of something idle also rests; only one that never changes faster is held by its source.
        quick = refresh.quantile(0.1)
        shown["held"] = bool(period_ns and quick and quick > 1.5 * period_ns)
        return shown


class Reads:
    """When something was read: asked and real period, gaps."""

    def __init__(self, asked_period_ns: int) -> None:
        self.periods = Histogram()
        self._asked = asked_period_ns
        self._gap = int(GAP_PERIODS * asked_period_ns)
        self._last: Optional[int] = None
        self._gaps = 0
        self._count = 0

    def observe(self, times: Sequence[int]) -> None:
        """Takes the times of some reads, in their order."""
        if not times:
            return
        before = times[0] if self._last is None else self._last
        intervals = [b - a for a, b in zip((before, *times), times)]
        if self._last is None:
            del intervals[0]
        self.periods.extend(intervals)
        if intervals and max(intervals) > self._gap:
            self._gaps += sum(interval > self._gap for interval in intervals)
        self._last = times[-1]
        self._count += len(times)

    def summary(self) -> Dict[str, Any]:
        """Plain values for the trace's metadata."""
        return {
            "asked_period_ms": round(self._asked / 1e6, 4),
            "real_period_ms": self.periods.summary(1e6),
            "reads": self._count,
            "gaps": self._gaps,
        }


class SourceQuality:
    """All that is counted for one source, outside of it."""

    def __init__(self, columns: Sequence[str], reads: Reads) -> None:
        """`reads` is fed by whoever owns it: sources that are read on the same ticks share one."""
        self.reads = reads
        self.cost = Histogram()
        self._columns = {column: ColumnQuality() for column in columns}
        self._parts: List[ColumnQuality] = list(self._columns.values())
        self._late = 0

    def observe(self, times: Sequence[int], columns: Sequence[Sequence[Value]]) -> None:
        """Takes the reads of a block: their times, and the values of each of the source's columns."""
        for part, values in zip(self._parts, columns):
            part.observe(times, values)

    def observe_late(self, samples: Sequence[Late]) -> None:
        self._late += len(samples)
        for t, values in samples:
            for part, value in zip(self._parts, values):
                if value is not None:
                    part.observe_own(t)

    def summary(self) -> Dict[str, Any]:
        """Plain values for the trace's metadata."""
        period = self.reads.periods.quantile(0.5)
        return {
            **self.reads.summary(),
            "late_samples": self._late,
            "read_cost_us": self.cost.summary(1e3),
            "columns": {name: part.summary(period) for name, part in self._columns.items()},
        }
