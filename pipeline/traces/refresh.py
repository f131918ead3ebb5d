"""How often a source really refreshes its value, and the series of real updates where that is slower than it was read.

A gauge that a driver renews every 100 ms, read every 10 ms, shows each value ten times; a counter so read shows nine
rests and one jump. Neither is what the device did.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from driple.pipeline.bursts.spans import GAP_PERIODS
from driple.pipeline.traces.series import FloatArray, usual_interval

MIN_CHANGES = 5
"""Fewer say nothing about how often a value is refreshed."""
_HELD = 1.5
"""Changes that are never closer than so many reads are the source's doing."""
_QUICK = 0.1
"""The share of changes that may be closer all the same."""
_ON_THE_BEAT = 0.9
"""This share of the changes must fall on one beat: a timer's, and not the workload's, which is not so regular."""


@dataclass(frozen=True)
class Refresh:
    """What was found."""

    period_s: float | None
    """Between updates: of the source where it is the slower one, else of the reads; None where nothing ever changed."""
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
    """The refresh period of finite values at increasing times.

    Args:
        t_s: when it was read.
        value: what was read; of a counter, what it has counted.
        counter: whether a rest means that nothing happened, rather than that a value was held.
        step_s: the training step, where known: what changes just once a step is the workload's beat, not the source's.
        period_s: the usual time between reads, where it is known already.
    """
    if len(t_s) < 2:
        return Refresh(None, False)
    period = period_s or usual_interval(t_s)
    changed = value[1:] != value[:-1]
    if np.count_nonzero(changed) > 0.6 * len(changed):
        return Refresh(period, False)  # more than half of the changes come one read after another
    changes: NDArray[np.int64] = np.flatnonzero(changed) + 1
    if not len(changes):
        return Refresh(None, False)
    intervals = np.diff(t_s[changes])
    if len(changes) < MIN_CHANGES or np.count_nonzero(intervals <= _HELD * period) > _QUICK * len(intervals):
        return Refresh(period, False)
    if not counter and len(np.unique(value[changes])) <= 2:
        return Refresh(period, False)  # an exact on-off wave: its edges are all that there is
    quick = float(np.quantile(intervals, _QUICK))
    guess = float(np.median(intervals[intervals < _HELD * quick]))
    beats = np.round(intervals / guess)
    refresh = float(np.median((intervals / beats)[beats <= 4]))
    off = np.abs(intervals - np.round(intervals / refresh) * refresh)
    if np.mean(off <= 1.2 * period) < _ON_THE_BEAT:
        return Refresh(period, False)
    if step_s is not None and abs(refresh - step_s) < 0.1 * step_s:
        return Refresh(period, False)
    return Refresh(refresh, True)


def real_updates(t_s: FloatArray, value: FloatArray, refresh_s: float) -> tuple[FloatArray, FloatArray]:
    """A held gauge as the source renewed it: a value that stood for three periods is three equal updates."""
    holes = unread(t_s, refresh_s)
    if len(holes):
        parts = zip(np.split(t_s, holes + 1), np.split(value, holes + 1), strict=True)
        times, values = zip(*(real_updates(*part, refresh_s) for part in parts), strict=True)
        return np.concatenate(times), np.concatenate(values)
    starts = np.r_[0, np.flatnonzero(value[1:] != value[:-1]) + 1]
    moments, index = beats(t_s[starts], float(t_s[-1]), refresh_s)
    return moments, value[starts][index]


def unread(t_s: FloatArray, refresh_s: float) -> NDArray[np.int64]:
    """Positions of reads after which none came for so long that nobody knows of the updates in between: a gap."""
    return np.flatnonzero(np.diff(t_s) > GAP_PERIODS * refresh_s)


def beats(t_s: FloatArray, end_s: float, refresh_s: float) -> tuple[FloatArray, NDArray[np.int64]]:
    """Moments of refreshing: each of `t_s`, and between them as many as fit, evenly.

    Returns:
        The moments, and for each the position in `t_s` of the last one that is not later.
    """
    lengths = np.diff(np.r_[t_s, end_s])
    counts = np.maximum(1, np.round(lengths / refresh_s)).astype(np.int64)
    index: NDArray[np.int64] = np.repeat(np.arange(len(t_s)), counts)
    nth = np.arange(len(index)) - np.repeat(np.cumsum(counts) - counts, counts)
    return t_s[index] + nth * (lengths / counts)[index], index
