"""Series: values of one thing over time, as the rest of the trace half takes them.

A sample stands for the time since the one before it. That is exact for rates, which are made of two reads of a counter,
and for the averaged gauges of devices; for a momentary value it moves all edges by half a sample and no duration.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]

NETWORK = "network"
"""Traffic: heavy-tailed, at rest near zero, with pauses inside a burst."""
BUSY = "busy"
"""A share of time in percent: of a GPU, of processors."""
LEVEL = "level"
"""Anything else: memory in use, power, temperature. Zero means nothing special."""

_GREATEST = 1e100
"""What is beyond it is no measurement, and its square no number."""

_ENOUGH = 20_000

KINDS = (NETWORK, BUSY, LEVEL)


@dataclass(frozen=True)
class Series:
    """One series of samples."""

    name: str
    t_s: FloatArray
    """Seconds, increasing."""
    value: FloatArray
    """A rate or a level, never a counter; NaN where unknown."""
    unit: str
    kind: str = LEVEL
    refresh_s: float | None = None
    """The source's own refresh period, where it is known already."""
    flags: tuple[str, ...] = ()
    """What was odd about it so far, like `resets:2`."""
    device_s: float | None = None
    """The period of a device that stamps its samples itself: each speaks of the one period before it, no more."""

    def between(self, start_s: float, end_s: float) -> Series:
        """What lies in a window: samples whose own time is wholly inside it."""
        first = int(np.searchsorted(self.t_s, start_s, side="left"))
        last = int(np.searchsorted(self.t_s, end_s, side="right"))
        if first > 0 or len(self.t_s):  # the first of them would reach back over the window's beginning
            first = min(first + 1, last)
        return replace(self, t_s=self.t_s[first:last], value=self.value[first:last])


@dataclass(frozen=True)
class Samples:
    """The usable part of a series: finite values at increasing times."""

    t_s: FloatArray
    value: FloatArray
    dropped: int
    """Samples left out: unknown, not finite, or not later than the one before."""

    @cached_property
    def period_s(self) -> float:
        """The usual time between two samples; 0 where there are not two."""
        return usual_interval(self.t_s)


def usual_interval(t_s: FloatArray) -> float:
    """The median time between samples, of a long series by every so-manieth; 0 where there are not two."""
    elapsed = np.diff(t_s)
    return float(np.median(elapsed[:: 1 + len(elapsed) // _ENOUGH])) if len(elapsed) else 0.0


def usable(t_s: FloatArray, value: FloatArray) -> Samples:
    """Leaves out what is unknown, not finite, or steps back in time."""
    t_s, value = np.asarray(t_s, dtype=np.float64), np.asarray(value, dtype=np.float64)
    keep = np.isfinite(t_s) & (np.abs(value) < _GREATEST)  # false for NaN, too
    if not keep.all():
        t_s, value = t_s[keep], value[keep]
    if len(t_s) > 1 and not (np.diff(t_s) > 0).all():
        highest = np.maximum.accumulate(t_s)
        later = np.r_[True, t_s[1:] > highest[:-1]]
        t_s, value = t_s[later], value[later]
    return Samples(t_s, value, int(len(keep) - len(t_s)))
