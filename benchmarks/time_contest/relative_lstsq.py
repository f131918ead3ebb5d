"""Rates that are never negative and have the least mean relative error.

    seconds = amounts . rates        rates >= 0, least sum over rows of |amounts . rates / seconds - 1|

By reweighted non-negative least squares: a row's weight is 1 / its relative error in the last turn.
"""

from __future__ import annotations

import numpy as np

from driple.inspector.data.array_types import FloatArray

TURNS = 8
EXACT = 0.03
"""Relative error below which the weight of a row does not grow."""
LEAST_S = 1e-4
"""A shorter step is never predicted."""


def relative_rates(amounts: FloatArray, seconds: FloatArray) -> FloatArray:
    """[C] rates from amounts [n, C] and seconds [n]."""
    from scipy.optimize import nnls

    size = amounts.max(axis=0, initial=0.0)
    unit = np.where(size > 0, size, 1.0)
    relative = amounts / unit / seconds[:, None]
    weights = np.ones(len(seconds))
    rates = np.zeros(amounts.shape[1])
    for _ in range(TURNS):
        root = np.sqrt(weights)
        rates = nnls(relative * root[:, None], root)[0]
        weights = 1 / np.maximum(np.abs(relative @ rates - 1), EXACT)
    return np.asarray(rates / unit, dtype=np.float64)


def seconds_by(amounts: FloatArray, rates: FloatArray) -> FloatArray:
    """[n] seconds, at least LEAST_S."""
    return np.maximum(amounts @ rates, LEAST_S)
