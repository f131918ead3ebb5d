"""Spans: labels of samples to stretches of burst and idle, flicker merged, partial ones marked.

All of it works on whole arrays: an hour at 100 Hz has 360 000 samples, a build has thousands of such series.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from driple.pipeline.series import FloatArray

GAP_PERIODS = 5.0
"""Samples further apart than so many periods leave a gap: what happened there is unknown."""
_IRREGULAR = 3.0
"""Where times are irregular by nature, a gap is also more than so many times the interval that 95 % do not exceed."""
_WITNESS = 2.0
_PASSES = 64


@dataclass(frozen=True)
class Grid:
    """When each sample begins and ends, and where nothing is known before it."""

    start_s: FloatArray
    end_s: FloatArray
    after_gap: NDArray[np.bool_]

    @property
    def duration_s(self) -> FloatArray:
        """How long each sample stands."""
        return self.end_s - self.start_s


def grid(t_s: FloatArray) -> Grid:
    """A sample stands for the time since the one before; the first, and one after a gap, for the usual period."""
    elapsed = np.diff(t_s)
    period = float(np.median(elapsed)) if len(elapsed) else 0.0
    limit = GAP_PERIODS * period
    if len(elapsed) and np.count_nonzero(elapsed > limit):
        limit = max(limit, _IRREGULAR * float(np.quantile(elapsed, 0.95)))
    gap = np.r_[False, elapsed > limit][: len(t_s)]
    start = np.r_[t_s[:1] - period, t_s[:-1]]
    return Grid(np.where(gap, t_s - period, start), t_s, gap)


@dataclass(frozen=True)
class Spans:
    """Stretches of samples of one label, in order."""

    first: NDArray[np.int64]
    """Position of its first sample."""
    last: NDArray[np.int64]
    high: NDArray[np.bool_]
    start_s: FloatArray
    end_s: FloatArray
    whole: NDArray[np.bool_]
    """False for the first and the last of all, and for those beside a gap: nobody saw where they began or ended."""

    @property
    def duration_s(self) -> FloatArray:
        """How long each lasts."""
        return self.end_s - self.start_s


def spans_of(high: NDArray[np.bool_], times: Grid) -> Spans:
    """Stretches of equal labels; a gap ends one."""
    begins = np.r_[True, (high[1:] != high[:-1]) | times.after_gap[1:]] if len(high) else np.zeros(0, bool)
    first = np.flatnonzero(begins)
    last = np.r_[first[1:] - 1, len(high) - 1] if len(first) else first
    cut_before = np.r_[True, times.after_gap[first[1:]]] if len(first) else np.zeros(0, bool)
    cut_after = np.r_[cut_before[1:], True] if len(first) else cut_before
    return Spans(first, last, high[first], times.start_s[first], times.end_s[last], ~(cut_before | cut_after))


def typical(sizes: FloatArray) -> float:
    """The size such that half of the whole is in parts of at least that size: flicker has numbers, but no weight."""
    if not len(sizes):
        return 0.0
    ordered = np.sort(sizes)[::-1]
    total = np.cumsum(ordered)
    return float(ordered[min(int(np.searchsorted(total, total[-1] / 2)), len(ordered) - 1)])


def without_flicker(
    high: NDArray[np.bool_], times: Grid, value: FloatArray, levels: tuple[float, float], share: float, never_s: float
) -> NDArray[np.bool_]:
    """Turns over spans that weigh less than `share` of what is typical of their kind, the lightest of neighbours first.

    The weight of a span is how far its samples are from the other level, times how long: of a burst of traffic, its bytes.
    A spike of noise is brief and goes half the way; a pause is brief; both weigh little beside what they interrupt.

    Args:
        high: labels.
        times: of the samples.
        value: of the samples.
        levels: of idle and of burst.
        share: of the typical weight.
        never_s: a span of this or more is no flicker, whatever it weighs.
    """
    # A sample after lost ones stands for their time too, but is no better a witness for that.
    duration = np.minimum(times.duration_s, _WITNESS * float(np.median(times.duration_s)))
    of_idle = np.r_[0.0, np.cumsum((levels[1] - value) * duration)]
    of_burst = np.r_[0.0, np.cumsum((value - levels[0]) * duration)]
    limit: tuple[float, float] | None = None
    for _ in range(_PASSES):
        spans = spans_of(high, times)
        end = spans.last + 1
        weight = np.where(spans.high, of_burst[end] - of_burst[spans.first], of_idle[end] - of_idle[spans.first])
        if limit is None:
            limit = share * typical(weight[~spans.high]), share * typical(weight[spans.high])
        beside = np.where(spans.whole, weight, np.inf)  # of one that was cut nobody knows what it weighed
        before, after = np.r_[np.inf, beside[:-1]], np.r_[beside[1:], np.inf]
        light = (weight < np.where(spans.high, limit[1], limit[0])) & (spans.duration_s < never_s)
        flip = spans.whole & light & (weight <= before) & (weight < after)
        if not flip.any():
            break
        high = _flipped(high, spans, flip)
    return high


def without_pauses(high: NDArray[np.bool_], times: Grid, limit_s: float) -> NDArray[np.bool_]:
    """Closes idle spans shorter than a limit between two bursts."""
    spans = spans_of(high, times)
    return _flipped(high, spans, spans.whole & ~spans.high & (spans.duration_s < limit_s))


def _flipped(high: NDArray[np.bool_], spans: Spans, flip: NDArray[np.bool_]) -> NDArray[np.bool_]:
    return np.repeat(spans.high ^ flip, spans.last - spans.first + 1)
