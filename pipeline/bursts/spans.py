"""Spans: labels of samples to stretches of burst and idle, flicker merged, partial ones marked.

All of it works on whole arrays: an hour at 100 Hz has 360 000 samples, a build has thousands of such series.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from driple.pipeline.traces.series import FloatArray, usual_interval

GAP_PERIODS = 5.0
"""Samples further apart than so many periods leave a gap: what happened there is unknown."""
_IRREGULAR = 3.0
"""Where times are irregular by nature, a gap is also more than so many times the interval that 95 % do not exceed."""
DEVICE_GAP_PERIODS = 2.5
"""Of a device that stamps its samples itself every longer interval is a gap, however many there are."""
_WITNESS = 2.0
_PASSES = 64


@dataclass(frozen=True)
class Grid:
    """When each sample begins and ends, and where nothing is known before it."""

    start_s: FloatArray
    end_s: FloatArray
    duration_s: FloatArray
    after_gap: NDArray[np.int64]
    """Positions of samples before which there is a gap."""
    period_s: float


def grid(t_s: FloatArray, period_s: float | None = None, device_s: float | None = None) -> Grid:
    """A sample stands for the time since the one before; the first, and one after a gap, for the usual period.

    Args:
        t_s: when samples were taken.
        period_s: the usual time between them, where it is known already.
        device_s: the period of a device that stamps them itself.
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
    """Stretches of samples of one label, in order."""

    first: NDArray[np.int64]
    """Position of its first sample."""
    last: NDArray[np.int64]
    high: NDArray[np.bool_]
    start_s: FloatArray
    end_s: FloatArray
    after_gap: NDArray[np.bool_]
    """Whether nothing is known before it."""

    @cached_property
    def whole(self) -> NDArray[np.bool_]:
        """False for the first and the last of all, and for those beside a gap: nobody saw where they began or ended."""
        if not len(self.first):
            return np.zeros(0, dtype=bool)
        cut = np.r_[True, self.after_gap[1:], True]
        return ~(cut[:-1] | cut[1:])

    @cached_property
    def duration_s(self) -> FloatArray:
        """How long each lasts."""
        return self.end_s - self.start_s

    def flipped(self, flip: NDArray[np.bool_]) -> Spans:
        """With some of them turned over, and so one with their neighbours."""
        if not flip.any():
            return self
        high = self.high ^ flip
        begins = np.flatnonzero(np.r_[True, (high[1:] != high[:-1]) | self.after_gap[1:]])
        ends = np.r_[begins[1:] - 1, len(high) - 1]
        return Spans(
            self.first[begins],
            self.last[ends],
            high[begins],
            self.start_s[begins],
            self.end_s[ends],
            self.after_gap[begins],
        )


def spans_of(high: NDArray[np.bool_], times: Grid) -> Spans:
    """Stretches of equal labels; a gap ends one."""
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
    """The size such that half of the whole is in parts of at least that size: flicker has numbers, but no weight."""
    if not len(sizes):
        return 0.0
    ordered = np.sort(sizes)[::-1]
    total = np.cumsum(ordered)
    return float(ordered[min(int(np.searchsorted(total, total[-1] / 2)), len(ordered) - 1)])


class Weights:
    """What spans weigh: how far samples are from the other level, times how long; of a burst of traffic, its bytes."""

    def __init__(self, value: FloatArray, times: Grid, levels: tuple[float, float], spans: Spans) -> None:
        """`spans` are the finest that will be asked for: others must be made of them."""
        # A sample after lost ones stands for their time too, but is no better a witness for that.
        duration = np.minimum(times.duration_s, _WITNESS * times.period_s)
        excess = value - levels[0]
        excess *= duration
        self._first = spans.first
        self._height = levels[1] - levels[0]
        self._time = np.r_[0.0, np.cumsum(np.add.reduceat(duration, spans.first))]
        self._amount = np.r_[0.0, np.cumsum(np.add.reduceat(excess, spans.first))]

    def of(self, spans: Spans) -> FloatArray:
        """The weight of each span."""
        begin: NDArray[np.int64] = np.searchsorted(self._first, spans.first)
        end = np.r_[begin[1:], len(self._first)]
        above_idle = self._amount[end] - self._amount[begin]
        full = self._height * (self._time[end] - self._time[begin])
        return np.where(spans.high, above_idle, full - above_idle)


def without_flicker(spans: Spans, weights: Weights, share: float, never_s: float) -> Spans:
    """Turns over spans that weigh less than `share` of what is typical of their kind, the lightest of neighbours first.

    A spike of noise is brief and goes half the way; a pause is brief; both weigh little beside what they interrupt.

    Args:
        spans: as the threshold made them.
        weights: of spans.
        share: of the typical weight.
        never_s: a span of this or more is no flicker, whatever it weighs.
    """
    weight = weights.of(spans)
    idle, burst = (share * typical(weight[which]) for which in (~spans.high, spans.high))
    for _ in range(_PASSES):
        beside = np.where(spans.whole, weight, np.inf)  # of one that was cut nobody knows what it weighed
        before, after = np.r_[np.inf, beside[:-1]], np.r_[beside[1:], np.inf]
        light = (weight < np.where(spans.high, burst, idle)) & (spans.duration_s < never_s)
        flip = spans.whole & light & (weight <= before) & (weight < after)
        if not flip.any():
            break
        spans = spans.flipped(flip)
        weight = weights.of(spans)
    return spans


def without_pauses(spans: Spans, limit_s: float) -> Spans:
    """Closes idle spans shorter than a limit between two bursts."""
    return spans.flipped(spans.whole & ~spans.high & (spans.duration_s < limit_s))
