"""Exact 2-means of numbers: sorted, so that every possible split is a place, and the best of them is found directly.

A split of sorted values into `k` low and `n - k` high ones leaves the least squared distance to the two means where
`S_k^2 n / (k (n - k))` is greatest, with S_k the sum of the first k distances from the mean. Prefix sums give all of
them at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from driple.pipeline.traces.series import FloatArray

_TAIL = 1.5
"""A value further from the low mean than so many times the median of the high cluster counts as one just there."""
_ROUNDS = 5
_STAYS = 0.02
"""A threshold that moves by less than this share of the distance between the means stays where it is."""


@dataclass(frozen=True)
class Split:
    """Two clusters."""

    low: float
    """Mean of the low cluster."""
    high: float
    threshold: float
    """Values above it are of the high cluster; it lies half-way between two neighbouring values."""
    low_count: int
    high_count: int
    inertia: float
    """Sum of squared distances to the means."""


def two_means(values: FloatArray) -> Split | None:
    """The best two clusters of finite numbers; None where there are no two different ones."""
    return split_sorted(np.sort(np.asarray(values, dtype=np.float64)))


def split_sorted(ordered: FloatArray) -> Split | None:
    """`two_means` of values that are in order already."""
    n = len(ordered)
    if n < 2 or ordered[0] == ordered[-1]:
        return None
    pivot = float(ordered[n // 2])
    centred = ordered - pivot  # squares of large numbers that differ little would lose the digits
    mean = float(np.mean(centred))
    centred -= mean
    below = np.cumsum(centred)[:-1]
    gain = np.square(below)
    gain *= _share(n)
    k = int(np.argmax(gain)) + 1
    if ordered[k] == ordered[k - 1]:  # equal values cannot be told apart; the best split is there for rounding alone
        gain[ordered[1:] == ordered[:-1]] = -1.0
        k = int(np.argmax(gain)) + 1
    low, high = float(below[k - 1]) / k, -float(below[k - 1]) / (n - k)
    inertia = max(0.0, float(np.dot(centred, centred)) - float(gain[k - 1]))
    threshold = float(ordered[k - 1] + (ordered[k] - ordered[k - 1]) / 2)
    if not ordered[k - 1] <= threshold < ordered[k]:  # neighbours among floats
        threshold = float(ordered[k - 1])
    mean += pivot
    return Split(mean + low, mean + high, threshold, k, n - k, inertia)


@lru_cache(maxsize=4)
def _share(n: int) -> FloatArray:
    """n / (k (n - k)) for every k."""
    k = np.arange(1.0, n)
    return n / (k * (n - k))


def split_without_tail(ordered: FloatArray) -> Split | None:
    """2-means of sorted values whose upper tail is cut until it has no more say.

    Traffic has a heavy tail: a few samples at the link's rate draw the threshold up through the burst they belong to.
    So values further up than twice the median of the high cluster are taken as just so high, and the split is made
    again, until nothing is left to cut.
    """
    split = split_sorted(ordered)
    for _ in range(_ROUNDS):
        if split is None:
            return None
        typical = float(ordered[split.low_count + split.high_count // 2])
        cap = split.low + _TAIL * (typical - split.low)
        if cap >= ordered[-1]:
            break
        ordered = np.minimum(ordered, cap)
        again = split_sorted(ordered)
        if again is None or again.threshold >= split.threshold:
            break
        moved = split.threshold - again.threshold
        split = again
        if moved < _STAYS * (split.high - split.low):
            break
    return split
