"""Merges labelled samples to burst and idle spans. Works on whole arrays, because a build has thousands of series."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from driple.pipeline.traces.series import FloatArray, usual_interval

GAP_PERIODS = 5.0
"""Samples further apart than this many periods leave a gap."""
_IRREGULAR = 3.0
"""A gap is also longer than this many times the 95 % quantile of the intervals, for irregular times."""
DEVICE_GAP_PERIODS = 2.5
"""The same for a device that stamps its samples. There every longer interval is a gap."""
_WITNESS = 2.0
_PASSES = 64


@dataclass(frozen=True)
class Grid:
    """Start and end of each sample, and the gaps."""

    start_s: FloatArray
    end_s: FloatArray
    duration_s: FloatArray
    after_gap: NDArray[np.int64]
    """Positions of samples that follow a gap."""
    period_s: float


def grid(t_s: FloatArray, period_s: float | None = None, device_s: float | None = None) -> Grid:
    """A sample stands for the time since the previous one; the first one and those after a gap for the usual period.

    `period_s` is the usual time between samples if known, `device_s` the sample period of a device that stamps them.
    """
    elapsed = np.diff(t_s)
    period = device_s or (period_s if period_s is not None else usual_interval(t_s))
    limit = (DEVICE_GAP_PERIODS if device_s else GAP_PERIODS) * period
    gap: NDArray[np.int64] = np.flatnonzero(elapsed > limit) + 1
    if len(gap) and not device_s:
        limit = max(limit, _IRREGULAR * float(np.quantile(elapsed, 0.95)))
        gap = gap[elapsed[gap - 1] > limit]
    start = np.empty_like(t_s)
    start[1:] = t_s[:-1]
    start[:1] = t_s[:1] - period
    start[gap] = t_s[gap] - period
    return Grid(start, t_s, t_s - start, gap, period)


@dataclass(frozen=True)
class Spans:
    """Consecutive samples of one label, in order."""

    first: NDArray[np.int64]
    """Position of its first sample."""
    last: NDArray[np.int64]
    high: NDArray[np.bool_]
    start_s: FloatArray
    end_s: FloatArray
    after_gap: NDArray[np.bool_]
    """Whether it follows a gap."""

    @cached_property
    def whole(self) -> NDArray[np.bool_]:
        """False for the first and last span and those next to a gap: their start or end was not observed."""
        if not len(self.first):
            return np.zeros(0, dtype=bool)
        cut = np.r_[True, self.after_gap[1:], True]
        return ~(cut[:-1] | cut[1:])

    @cached_property
    def duration_s(self) -> FloatArray:
        return self.end_s - self.start_s

    def flipped(self, flip: NDArray[np.bool_]) -> Spans:
        """With the labels of some spans inverted, which merges them with their neighbours."""
        if not flip.any():
            return self
        high = self.high ^ flip
        begins = np.flatnonzero(np.r_[True, (high[1:] != high[:-1]) | self.after_gap[1:]])
        ends = np.r_[begins[1:] - 1, len(high) - 1]
        first, start_s, after_gap = (each[begins] for each in (self.first, self.start_s, self.after_gap))
        return Spans(first, self.last[ends], high[begins], start_s, self.end_s[ends], after_gap)


def spans_of(high: NDArray[np.bool_], times: Grid) -> Spans:
    """Spans of equal labels. A gap ends a span."""
    if not len(high):
        none: NDArray[np.int64] = np.zeros(0, dtype=np.int64)
        return Spans(none, none, high, times.start_s, times.end_s, high)
    first = np.r_[0, np.flatnonzero(high[1:] != high[:-1]) + 1]
    after_gap: NDArray[np.bool_] = np.zeros(len(first), dtype=bool)
    if len(times.after_gap):
        first = np.union1d(first, times.after_gap)
        after_gap = np.isin(first, times.after_gap)
    last = np.r_[first[1:] - 1, len(high) - 1]
    return Spans(first, last, high[first], times.start_s[first], times.end_s[last], after_gap)


def typical(sizes: FloatArray) -> float:
    """The size such that spans of at least this size make up half of the total."""
    if not len(sizes):
        return 0.0
    ordered = np.sort(sizes)[::-1]
    total = np.cumsum(ordered)
    return float(ordered[min(int(np.searchsorted(total, total[-1] / 2)), len(ordered) - 1)])


class Weights:
    """Weights of spans: distance from the other level times duration. For a burst of traffic these are its bytes."""

    def __init__(self, value: FloatArray, times: Grid, levels: tuple[float, float], spans: Spans) -> None:
        """`spans` are the finest spans; all others are unions of them."""
        # A sample after lost samples stands for their time too, but is not more reliable for it.
        duration = np.minimum(times.duration_s, _WITNESS * times.period_s)
        excess = value - levels[0]
        excess *= duration
        self._first = spans.first
        self._height = levels[1] - levels[0]
        self._time = np.r_[0.0, np.cumsum(np.add.reduceat(duration, spans.first))]
        self._amount = np.r_[0.0, np.cumsum(np.add.reduceat(excess, spans.first))]

    def of(self, spans: Spans) -> FloatArray:
        begin: NDArray[np.int64] = np.searchsorted(self._first, spans.first)
        end = np.r_[begin[1:], len(self._first)]
        above_idle = self._amount[end] - self._amount[begin]
        full = self._height * (self._time[end] - self._time[begin])
        return np.where(spans.high, above_idle, full - above_idle)


def without_flicker(spans: Spans, weights: Weights, share: float, never_s: float) -> Spans:
    """Inverts spans that weigh less than `share` of the typical weight, the lightest of neighbours first.

    Spans of at least `never_s` are not flicker, whatever they weigh.
    """
    weight = weights.of(spans)
    idle, burst = (share * typical(weight[which]) for which in (~spans.high, spans.high))
    for _ in range(_PASSES):
        beside = np.where(spans.whole, weight, np.inf)  # the weight of a partial span is unknown
        before, after = np.r_[np.inf, beside[:-1]], np.r_[beside[1:], np.inf]
        light = (weight < np.where(spans.high, burst, idle)) & (spans.duration_s < never_s)
        flip = spans.whole & light & (weight <= before) & (weight < after)
        if not flip.any():
            break
        spans = spans.flipped(flip)
        weight = weights.of(spans)
    return spans


def without_pauses(spans: Spans, limit_s: float) -> Spans:
    """Merges bursts that are separated by an idle span shorter than a limit."""
    return spans.flipped(spans.whole & ~spans.high & (spans.duration_s < limit_s))
