"""Counters to rates: wraps, resets, reads that fall close together, rates that cannot be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driple.pipeline.traces.refresh import Refresh, beats, find_refresh, unread
from driple.pipeline.traces.series import FloatArray

_WRAP = 1 << 32
_CLOSE = 0.5
"""Reads closer than this share of the usual period are taken as one: counters that move in ticks give absurd rates."""
_PLAUSIBLE = 2.0
"""A wrap may give a rate of so many times the greatest other one; more is a reset."""
_TOLERANCE = 1.05
"""A rate above its limit by no more than this is the clock's fault and not worth a word."""


@dataclass(frozen=True)
class Rate:
    """A counter's increase per second, each over the time since the one before."""

    t_s: FloatArray
    per_s: FloatArray
    refresh: Refresh
    wraps: int = 0
    resets: int = 0
    clamped: int = 0

    @property
    def flags(self) -> tuple[str, ...]:
        """What happened on the way, as flags of a series."""
        counts = (("wraps", self.wraps), ("resets", self.resets), ("clamped", self.clamped))
        return tuple(f"{name}:{count}" for name, count in counts if count)


def rate(t_s: FloatArray, count: Any, *, limit_per_s: float | None = None, step_s: float | None = None) -> Rate:
    """The rate of a counter.

    Args:
        t_s: when it was read.
        count: what was read, integers or floats; NaN where nothing was.
        limit_per_s: what cannot be exceeded; more is set to it and counted.
        step_s: the training step, where known; a counter that moves once a step is not one that is refreshed so slowly.

    Returns:
        One value less than there were reads; NaN where the counter was set back, because nobody knows what it lost.
    """
    t_s, count = _apart(*_in_order(np.asarray(t_s, dtype=np.float64), np.asarray(count)))
    if len(t_s) < 2:
        return Rate(t_s[:0], t_s[:0], Refresh(None, False))
    increase, wraps, resets = _increases(t_s, count)
    counted = np.r_[0.0, np.cumsum(np.nan_to_num(increase, nan=1.0))]  # a reset is a change, too
    refresh = find_refresh(t_s, counted, counter=True, step_s=step_s)
    if refresh.held and refresh.period_s is not None:
        t_s, increase = _real_updates(t_s, increase, refresh.period_s)
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
    """Without reads that come too soon after the one before; what they counted falls to the next."""
    if len(t_s) < 3:
        return t_s, count
    elapsed = np.diff(t_s)
    least = _CLOSE * float(np.median(elapsed))
    close = elapsed < least
    if not close.any():
        return t_s, count
    # Where several follow each other, time is counted from the read before the first of them.
    anchor = np.r_[0, np.maximum.accumulate(np.where(close, 0, np.arange(1, len(t_s))))]
    cell = np.floor((t_s - t_s[anchor]) / least)
    keep = np.r_[True, ~close | (cell[1:] > cell[:-1])]
    return t_s[keep], count[keep]


def _increases(t_s: FloatArray, count: Any) -> tuple[FloatArray, int, int]:
    """Differences, wraps made good, NaN at resets; and how many there were of both.

    A counter that falls has wrapped at 2^32 where that gives a rate as others are, and was set back where not. One of
    64 bits that wraps needs nothing more than arithmetic that does.
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
    """A counter that its source renews slowly, as it was renewed: what came with a jump came since the beat before.

    Where it was not read for long, nothing is known until it jumps again: of a rest there nobody saw the beginning.
    """
    holes = unread(t_s, refresh_s)
    increase = np.where(np.isin(np.arange(len(increase)), holes), 0.0, increase)
    jumps: NDArray[np.int64] = np.union1d(np.flatnonzero(~(increase == 0)) + 1, holes)
    at, index = beats(t_s[jumps], float(t_s[-1]), refresh_s)
    unknown = np.isin(jumps, holes)[index]
    if len(holes):
        keep = ~unknown | np.r_[True, index[1:] != index[:-1]]
        at, index, unknown = at[keep], index[keep], unknown[keep]
    last = np.r_[index[1:] != index[:-1], False]  # after it comes the next jump
    gained = np.where(last[:-1], increase[jumps - 1][np.minimum(index[:-1] + 1, len(jumps) - 1)], 0.0)
    return at, np.where(unknown[:-1], np.nan, gained)
