"""Converts counters to rates. Handles wraps, resets, reads that are close together, and impossible rates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driple.pipeline.traces.refresh import Refresh, beats, find_refresh, unread
from driple.pipeline.traces.series import FloatArray, usual_interval

_WRAP = 1 << 32
_CLOSE = 0.5
"""Reads closer than this share of the usual period are merged: counters that move in ticks give absurd rates."""
_PLAUSIBLE = 2.0
"""A wrap may give a rate of at most this many times the greatest other one; otherwise it is a reset."""
_TOLERANCE = 1.05
"""A rate above its limit by no more than this factor is an error of the clock and is not counted."""
_LATE = 1.5
"""A read sees an update at most this many read periods late."""


@dataclass(frozen=True)
class Rate:
    """The increase of a counter per second. Each value stands for the time since the previous one."""

    t_s: FloatArray
    per_s: FloatArray
    refresh: Refresh
    wraps: int = 0
    resets: int = 0
    clamped: int = 0

    @property
    def flags(self) -> tuple[str, ...]:
        counts = (("wraps", self.wraps), ("resets", self.resets), ("clamped", self.clamped))
        return tuple(f"{name}:{count}" for name, count in counts if count)


def rate(t_s: FloatArray, count: Any, *, limit_per_s: float | None = None, step_s: float | None = None) -> Rate:
    """The rate of a counter: one value less than there were reads; NaN at resets, where the lost amount is unknown.

    Args:
        count: values that were read, integers or floats; NaN if unknown.
        limit_per_s: the greatest possible rate. Higher ones are set to it and counted.
        step_s: the training step if known. A counter that moves once a step does not have a slow source.
    """
    t_s, count = _apart(*_in_order(np.asarray(t_s, dtype=np.float64), np.asarray(count)))
    if len(t_s) < 2:
        return Rate(t_s[:0], t_s[:0], Refresh(None, False))
    increase, wraps, resets = _increases(t_s, count)
    counted = np.r_[0.0, np.cumsum(np.nan_to_num(increase, nan=1.0))]  # a reset is a change, too
    refresh = find_refresh(t_s, counted, counter=True, step_s=step_s)
    if refresh.held and refresh.period_s is not None:
        t_s, per_s = _real_updates(t_s, increase, refresh.period_s)
    else:
        per_s = increase / np.diff(t_s)
    clamped = 0
    if limit_per_s is not None:
        clamped = int(np.count_nonzero(per_s > limit_per_s * _TOLERANCE))
        per_s = np.minimum(per_s, limit_per_s)
    return Rate(t_s[1:], per_s, refresh, wraps, resets, clamped)


def _in_order(t_s: FloatArray, count: Any) -> tuple[FloatArray, Any]:
    known = np.isfinite(t_s)
    if count.dtype.kind == "f":
        known &= np.isfinite(count)
    t_s, count = t_s[known], count[known]
    if len(t_s) > 1 and not (np.diff(t_s) > 0).all():
        later = np.r_[True, t_s[1:] > np.maximum.accumulate(t_s)[:-1]]
        t_s, count = t_s[later], count[later]
    return t_s, count


def _apart(t_s: FloatArray, count: Any) -> tuple[FloatArray, Any]:
    """Without reads that follow the previous one too soon. Their increase is part of the next one."""
    if len(t_s) < 3:
        return t_s, count
    elapsed = np.diff(t_s)
    least = _CLOSE * float(np.median(elapsed))
    close = elapsed < least
    if not close.any():
        return t_s, count
    # For several in a row, time is counted from the read before the first of them.
    anchor = np.r_[0, np.maximum.accumulate(np.where(close, 0, np.arange(1, len(t_s))))]
    cell = np.floor((t_s - t_s[anchor]) / least)
    keep = np.r_[True, ~close | (cell[1:] > cell[:-1])]
    return t_s[keep], count[keep]


def _increases(t_s: FloatArray, count: Any) -> tuple[FloatArray, int, int]:
    """Differences with wraps corrected and NaN at resets, and the numbers of both.

    A counter that falls has wrapped at 2^32 if that gives a plausible rate, and was reset if not. A wrap of 64 bits is
    corrected by unsigned arithmetic.
    """
    if count.dtype.kind in "iu":  # exact also beyond 2^53
        increase = (count[1:].astype(np.uint64) - count[:-1].astype(np.uint64)).astype(np.int64).astype(np.float64)
    else:
        increase = np.diff(count.astype(np.float64))
    fell = increase < 0
    if not fell.any():
        return increase, 0, 0
    elapsed = np.diff(t_s)
    usual = float(np.max(np.where(fell, 0.0, increase) / elapsed))
    wrapped = increase + _WRAP
    wraps = fell & (count[:-1] < _WRAP) & (wrapped >= 0) & (wrapped <= _PLAUSIBLE * usual * elapsed)
    increase = np.where(wraps, wrapped, np.where(fell, np.nan, increase))
    return increase, int(np.count_nonzero(wraps)), int(np.count_nonzero(fell & ~wraps))


def _real_updates(t_s: FloatArray, increase: FloatArray, refresh_s: float) -> tuple[FloatArray, FloatArray]:
    """Times and rates of the updates of a counter whose source is slower than the reads.

    What a change added was counted in the refresh period before it. After a gap in the reads nothing is known until the
    next change, because nobody saw when an idle span before it began.
    """
    period = usual_interval(t_s)
    holes = unread(t_s, refresh_s)
    increase = np.where(np.isin(np.arange(len(increase)), holes), 0.0, increase)
    jumps: NDArray[np.int64] = np.union1d(np.flatnonzero(~(increase == 0)) + 1, holes)
    unknown = np.isin(jumps, holes)
    lengths = np.diff(np.r_[t_s[jumps], t_s[-1]])
    # A read sees an update up to one read period late, so an interval may be that much longer than the refresh period.
    single = unknown | (lengths <= refresh_s + _LATE * period)
    counts = np.maximum(1.0, np.where(single, 1.0, np.round(lengths / refresh_s)))
    at, index, left = beats(t_s[jumps], lengths, counts)
    # Each interval ends with a change, except the last. That change was counted since the read before it: in the last
    # part of the interval, or in several if there were no reads for so long.
    unseen = t_s[jumps[1:]] - t_s[jumps[1:] - 1]
    parts = np.clip(np.ceil(unseen / (lengths / counts)[:-1] - 0.05), 1.0, counts[:-1])
    share, parts = np.r_[increase[jumps[1:] - 1] / parts, 0.0], np.r_[parts, 0.0]
    gained = np.where(left < parts[index], share[index], 0.0)
    return at, np.where(unknown[index], np.nan, gained / refresh_s)[:-1]
