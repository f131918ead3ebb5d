"""Series: values of one quantity over time.

A sample stands for the time since the previous one. That is exact for rates, which are differences of two reads, and
for gauges that a device averages. For momentary values it shifts all edges by half a sample and keeps all durations.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]

LEVEL = "level"
"""Kind of a series that is neither busy time nor traffic: memory in use, power, temperature. Zero is not special."""

_GREATEST = 1e100
"""Larger values are not measurements, and their squares overflow."""
_ENOUGH = 20_000


@dataclass(frozen=True)
class Series:
    """One series of samples."""

    name: str
    t_s: FloatArray
    """Seconds, increasing."""
    value: FloatArray
    """A rate or a level, never a counter; NaN if unknown."""
    unit: str
    kind: str = LEVEL
    """`busy`, `network` (contracts/metrics.py) or `level`."""
    refresh_s: float | None = None
    """The refresh period of the source if known."""
    flags: tuple[str, ...] = ()
    """Oddities found so far, such as `resets:2`."""
    device_s: float | None = None
    """The sample period of a device that stamps its samples. Each sample stands for one such period."""

    def between(self, start_s: float, end_s: float) -> Series:
        """The samples whose time is completely inside a window."""
        first = int(np.searchsorted(self.t_s, start_s, side="left"))
        last = int(np.searchsorted(self.t_s, end_s, side="right"))
        first = min(first + 1, last)  # the first one began before the window
        return replace(self, t_s=self.t_s[first:last], value=self.value[first:last])


@dataclass(frozen=True)
class Samples:
    """The usable part of a series: finite values at increasing times."""

    t_s: FloatArray
    value: FloatArray
    dropped: int
    """Samples left out: unknown, not finite, or not later than the previous one."""

    @cached_property
    def period_s(self) -> float:
        """The usual time between two samples; 0 if there are fewer than two."""
        return usual_interval(self.t_s)


def thinned(t_s: FloatArray, value: FloatArray, most: int) -> tuple[FloatArray, FloatArray]:
    """Minima and maxima of intervals, if there are more points than a plot can show."""
    if len(t_s) <= most:
        return t_s, value
    starts = np.linspace(0, len(t_s), most // 2 + 1).astype(int)[:-1]
    both = np.stack([np.minimum.reduceat(value, starts), np.maximum.reduceat(value, starts)], axis=1).ravel()
    return np.repeat(t_s[starts], 2), both


def usual_interval(t_s: FloatArray) -> float:
    """The median time between samples, of a long series from a part of them; 0 if there are fewer than two."""
    elapsed = np.diff(t_s)
    return float(np.median(elapsed[:: 1 + len(elapsed) // _ENOUGH])) if len(elapsed) else 0.0


def usable(t_s: FloatArray, value: FloatArray) -> Samples:
    """Leaves out samples that are unknown, not finite, or step back in time."""
    t_s, value = np.asarray(t_s, dtype=np.float64), np.asarray(value, dtype=np.float64)
    keep = np.isfinite(t_s) & (np.abs(value) < _GREATEST)  # false for NaN, too
    if not keep.all():
        t_s, value = t_s[keep], value[keep]
    if len(t_s) > 1 and not (np.diff(t_s) > 0).all():
        highest = np.maximum.accumulate(t_s)
        later = np.r_[True, t_s[1:] > highest[:-1]]
        t_s, value = t_s[later], value[later]
    return Samples(t_s, value, int(len(keep) - len(t_s)))
