"""Exact 2-means of numbers.

The squared distance to the two means of `k` low and `n - k` high values in sorted order is least where
`S_k^2 n / (k (n - k))` is greatest, with S_k the sum of the first k distances from the overall mean. Prefix sums give
all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from driple.pipeline.traces.series import FloatArray

_TAIL = 1.5
"""Values are limited to this many times the distance of the high cluster's median from the low mean."""
_ROUNDS = 5
_STAYS = 0.02
"""Iterations end when the threshold moves by less than this share of the distance between the means."""


@dataclass(frozen=True)
class Split:
    """Two clusters."""

    low: float
    """Mean of the low cluster."""
    high: float
    threshold: float
    """Values above it belong to the high cluster. It is half-way between two neighbouring values."""
    low_count: int
    high_count: int


def split_sorted(ordered: FloatArray) -> Split | None:
    """The best two clusters of finite sorted numbers; None if all are equal."""
    n = len(ordered)
    if n < 2 or ordered[0] == ordered[-1]:
        return None
    pivot = float(ordered[n // 2])
    centred = ordered - pivot  # avoids the loss of digits in squares of large numbers
    mean = float(np.mean(centred))
    centred -= mean
    below = np.cumsum(centred)[:-1]
    gain = np.square(below)
    gain *= _share(n)
    k = int(np.argmax(gain)) + 1
    if ordered[k] == ordered[k - 1]:  # a split between equal values, due to rounding
        gain[ordered[1:] == ordered[:-1]] = -1.0
        k = int(np.argmax(gain)) + 1
    low, high = float(below[k - 1]) / k, -float(below[k - 1]) / (n - k)
    threshold = float(ordered[k - 1] + (ordered[k] - ordered[k - 1]) / 2)
    if not ordered[k - 1] <= threshold < ordered[k]:  # neighbours among floats
        threshold = float(ordered[k - 1])
    mean += pivot
    return Split(mean + low, mean + high, threshold, k, n - k)


@lru_cache(maxsize=4)
def _share(n: int) -> FloatArray:
    """n / (k (n - k)) for every k."""
    k = np.arange(1.0, n)
    return n / (k * (n - k))


def split_without_tail(ordered: FloatArray) -> Split | None:
    """2-means of sorted values with a limited upper tail.

    Traffic has a heavy tail: a few samples at the rate of the link move the threshold into the bursts they belong to.
    So values above the low mean plus 1.5 times the distance to the median of the high cluster are set to that limit,
    and the split is repeated until the threshold stays.
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
