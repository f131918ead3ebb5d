"""Least squares with coefficients of at least 0, for a handful of them: every subset is tried, the best one counts.

An ordinary solution on the right subset is the optimum, so no iteration and no library is needed.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray

ROUNDS = 12
_LEAST_SHARE = 0.01


def nonnegative_fit(columns: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Coefficients of at least 0 such that columns @ coefficients is near the values, which are all above 0.

    Least squares with the weights 1 / (found * value), repeated until they hold. With one coefficient the mean of
    found / value is then 1. Errors relative to the value alone would prefer values that are too small.
    """
    found = values
    for _ in range(ROUNDS):
        costs = _weighted(columns, values, 1 / np.sqrt(values * found))
        found = np.maximum(columns @ costs, values * _LEAST_SHARE)
    return costs


def _weighted(
    columns: NDArray[np.float64], values: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    count = columns.shape[1]
    left, right = columns * weights[:, None], values * weights
    best, least = np.zeros(count), float(right @ right)
    for size in range(1, count + 1):
        for chosen in combinations(range(count), size):
            part = left[:, chosen]
            scale = np.abs(part).max(axis=0)
            if not scale.all():
                continue
            found = np.linalg.lstsq(part / scale, right, rcond=None)[0] / scale
            error = float(np.sum((part @ found - right) ** 2))
            if (found >= 0).all() and error < least * (1 - 1e-9) - 1e-15 * float(right @ right):
                best, least = np.zeros(count), error
                best[list(chosen)] = found
    return best


def mean_error_pct(predicted: NDArray[np.float64], measured: NDArray[np.float64]) -> float:
    """Mean absolute error in percent."""
    return round(100 * float(np.mean(np.abs(predicted / measured - 1))), 1)
