"""Finds the refresh period of a source, and the series of real updates if the source is slower than the reads.

A gauge that a driver updates every 100 ms and that is read every 10 ms shows each value ten times. A counter read like
this shows nine zero increases and one large one. Neither is what the device did.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from driple.pipeline.bursts.spans import GAP_PERIODS, typical
from driple.pipeline.traces.series import FloatArray, usual_interval

MIN_CHANGES = 5
"""Fewer changes are no evidence of a refresh period."""
_HELD = 1.5
"""Changes that are never closer than this many reads are caused by the source."""
_QUICK = 0.1
"""The share of changes that may be closer."""
_REGULAR = 0.9
"""This share of the changes must fit the refresh period: a timer is that regular, a workload is not."""
_SLOWER = 1.2
"""A counter is checked for a timer if its source is slower than the reads by at least this factor."""
_MIN_TIMED = 16
"""Fewer changes are no evidence of a timer that is hardly slower than the reads."""
_RUN = 64
"""Changes that are compared with one regular sequence. A timer may drift over more."""
_MIN_RUN = 4
_ACTIVE = 0.2
"""Changes by less than this share of a typical one are not compared: little traffic does not show every update."""


@dataclass(frozen=True)
class Refresh:
    """The refresh period of a source."""

    period_s: float | None
    """The period of the source if it is slower than the reads, else of the reads; None if no value changed."""
    held: bool
    """Whether the source is slower than the reads."""


def find_refresh(
    t_s: FloatArray,
    value: FloatArray,
    *,
    counter: bool = False,
    step_s: float | None = None,
    period_s: float | None = None,
) -> Refresh:
    """The refresh period of finite values at increasing times; `period_s` is the usual time between reads if known.

    An unchanged counter can mean that nothing happened, as opposed to a gauge. A value that changes once a training
    step follows the workload, not a timer.
    """
    if len(t_s) < 2:
        return Refresh(None, False)
    period = period_s or usual_interval(t_s)
    changed = value[1:] != value[:-1]
    changes: NDArray[np.int64] = np.flatnonzero(changed) + 1
    if not len(changes):
        return Refresh(None, False)
    refresh = _timer(t_s, value, changes, period) if counter else None
    if refresh is None:
        refresh = _never_quick(t_s, value, changes, period, counter)
    if refresh is None or (step_s is not None and abs(refresh - step_s) < 0.1 * step_s):
        return Refresh(period, False)
    return Refresh(refresh, True)


def _timer(t_s: FloatArray, value: FloatArray, changes: NDArray[np.int64], period: float) -> float | None:
    """The period of a timer that explains when a counter changed while it was active.

    The n-th update of a timer is at n times its period. A read sees it up to one read period later, however large n
    is. The pauses of a workload add up instead. This tells a counter that is polled faster than it is updated (zero
    and double increases alternate) from one that is idle now and then.
    """
    if len(changes) < _MIN_TIMED or len(changes) * _SLOWER > len(t_s):
        return None
    grown = value[changes] - value[changes - 1]
    active = grown >= _ACTIVE * typical(grown)
    gaps = np.diff(changes)
    apart = (gaps > 2 * np.median(gaps)) | ~active[1:] | ~active[:-1]
    run = np.r_[0, np.cumsum(apart)]
    first = np.r_[0, np.flatnonzero(apart) + 1]
    nth = np.arange(len(changes)) - first[run]
    starts = np.flatnonzero(nth % _RUN == 0)
    size = np.diff(np.r_[starts, len(changes)])
    nth = np.arange(len(changes)) - np.repeat(starts, size)
    elapsed = t_s[changes] - np.repeat(t_s[changes[starts]], size)
    # The slope of a least-squares line through each run is its period.
    mean_n, mean_t = (size - 1) / 2, np.add.reduceat(elapsed, starts) / size
    spread = np.add.reduceat((nth - np.repeat(mean_n, size)) ** 2, starts)
    slope = np.add.reduceat((nth - np.repeat(mean_n, size)) * elapsed, starts) / np.maximum(spread, 1.0)
    long = size >= _MIN_RUN
    if size[long].sum() < max(_MIN_TIMED, np.count_nonzero(active) / 2):
        return None
    order = np.argsort(slope[long])
    weight = np.cumsum(size[long][order])
    refresh = float(slope[long][order][np.searchsorted(weight, weight[-1] / 2)])
    if refresh < _SLOWER * period:
        return None
    late = elapsed - nth * refresh
    late -= np.repeat(mean_t - mean_n * refresh, size)
    fits = np.abs(late[np.repeat(long, size)]) <= 0.65 * period
    return refresh if np.mean(fits) >= _REGULAR else None


def _never_quick(
    t_s: FloatArray, value: FloatArray, changes: NDArray[np.int64], period: float, counter: bool
) -> float | None:
    """The period of a source whose changes are never as close as the reads; None if some are."""
    intervals = np.diff(t_s[changes])
    if len(changes) < MIN_CHANGES or np.count_nonzero(intervals <= _HELD * period) > _QUICK * len(intervals):
        return None
    if not counter and len(np.unique(value[changes])) <= 2:
        return None  # an on-off wave
    quick = float(np.quantile(intervals, _QUICK))
    guess = float(np.median(intervals[intervals < _HELD * quick]))
    if counter and guess < 2.5 * period:
        return None  # too close to the reads for evidence this weak
    count = np.maximum(1.0, np.round(intervals / guess))
    refresh = float(np.median((intervals / count)[count <= 4]))
    off = np.abs(intervals - np.round(intervals / refresh) * refresh)
    return refresh if np.mean(off <= 1.2 * period) >= _REGULAR else None


def real_updates(t_s: FloatArray, value: FloatArray, refresh_s: float) -> tuple[FloatArray, FloatArray]:
    """The updates of a held gauge: a value that lasted for three periods gives three equal updates."""
    holes = unread(t_s, refresh_s)
    if len(holes):
        parts = zip(np.split(t_s, holes + 1), np.split(value, holes + 1), strict=True)
        times, values = zip(*(real_updates(*part, refresh_s) for part in parts), strict=True)
        return np.concatenate(times), np.concatenate(values)
    starts = np.r_[0, np.flatnonzero(value[1:] != value[:-1]) + 1]
    lengths = np.diff(np.r_[t_s[starts], t_s[-1]])
    moments, index, _ = beats(t_s[starts], lengths, np.maximum(1, np.round(lengths / refresh_s)))
    return moments, value[starts][index]


def unread(t_s: FloatArray, refresh_s: float) -> NDArray[np.int64]:
    """Positions of reads that are followed by a gap: the updates in it are unknown."""
    return np.flatnonzero(np.diff(t_s) > GAP_PERIODS * refresh_s)


def beats(
    t_s: FloatArray, lengths: FloatArray, counts: FloatArray
) -> tuple[FloatArray, NDArray[np.int64], NDArray[np.int64]]:
    """Divides intervals evenly: start of each part, position of its interval, parts of the interval that follow it."""
    whole = counts.astype(np.int64)
    index: NDArray[np.int64] = np.repeat(np.arange(len(t_s)), whole)
    nth = np.arange(len(index)) - np.repeat(np.cumsum(whole) - whole, whole)
    return t_s[index] + nth * (lengths / whole)[index], index, whole[index] - 1 - nth
