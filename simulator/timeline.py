"""Timeline: what a task used over time, exact between events, and summed over the intervals of a sampler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Timeline:
    """An amount as a function of time, piecewise linear."""

    times: NDArray[np.float64]
    """Rising, from 0."""
    total: NDArray[np.float64]
    """The amount until each time."""

    def until(self, times: NDArray[np.float64]) -> NDArray[np.float64]:
        """The amount until each of these times: what a counter shows."""
        return np.interp(times, self.times, self.total)


def timeline(pieces: Sequence[tuple[float, float, float]]) -> Timeline:
    """The sum of stretches (start, end, amount), each of constant rate."""
    if not pieces:
        return Timeline(np.zeros(1), np.zeros(1))
    start, end, amount = np.array(pieces).T
    rate = amount / (end - start)
    times, position = np.unique(np.concatenate([[0.0], start, end]), return_inverse=True)
    change = np.bincount(position[1:], np.concatenate([rate, -rate]), minlength=len(times))
    level = np.maximum(np.cumsum(change), 0.0)  # rounding may leave a little less than 0
    return Timeline(times, np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(times))]))
