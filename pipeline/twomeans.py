"""Exact 2-means of numbers: sorted, so that every possible split is a place, and the best of them is found directly.

A split of sorted values into `k` low and `n - k` high ones leaves the least squared distance to the two means where
`S_k^2 / k + (S - S_k)^2 / (n - k)` is greatest, with S_k the sum of the first k. Prefix sums give all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from driple.pipeline.series import FloatArray

_TAIL = 1.5
"""A value further from the low mean than so many times the median of the high cluster counts as one just there."""
_ROUNDS = 10


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
    # Around their middle and in units of their range: squares of large numbers that differ little would lose the digits.
    middle, scale = float(ordered[n // 2]), float(ordered[-1] - ordered[0])
    centred = (ordered - middle) / scale
    below = np.cumsum(centred)
    total = float(below[-1])
    count = np.arange(1.0, n)
    gain = below[:-1] ** 2 / count
    gain += (total - below[:-1]) ** 2 / (n - count)
    gain[ordered[1:] == ordered[:-1]] = -np.inf  # equal values cannot be told apart
    k = int(np.argmax(gain)) + 1
    low, high = float(below[k - 1]) / k, (total - float(below[k - 1])) / (n - k)
    inertia = float(np.sum((centred[:k] - low) ** 2) + np.sum((centred[k:] - high) ** 2))
    threshold = float(ordered[k - 1] + (ordered[k] - ordered[k - 1]) / 2)
    if not ordered[k - 1] <= threshold < ordered[k]:  # neighbours among floats
        threshold = float(ordered[k - 1])
    return Split(middle + scale * low, middle + scale * high, threshold, k, n - k, inertia * scale * scale)


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
        split = again
    return split
