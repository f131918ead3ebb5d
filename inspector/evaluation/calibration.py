"""Whether the spread of an ensemble says how wrong it is.

Networks that learned from the same rows agree more than they are right. So their spread is multiplied with a factor,
for each target the one with which 68 % of the validation errors lie within one spread. On test rows it is then counted
how many lie within one spread and within two: 68 and 95 % would be perfect.
"""

from __future__ import annotations

import numpy as np

from driple.inspector.data.array_types import FloatArray

ONE_DEVIATION = 0.683
LEAST_ROWS = 20
"""Validation rows from which on a target has a factor of its own; below, one for all targets."""


def factors(truth: FloatArray, predicted: FloatArray, spread: FloatArray) -> tuple[float, ...]:
    """The factor of each target, from validation rows; all [n, 12], NaN where unknown."""
    ratio = _ratio(truth, predicted, spread)
    known = ratio[~np.isnan(ratio)]
    together = _factor(known) if len(known) else 1.0
    columns = [column[~np.isnan(column)] for column in ratio.T]
    return tuple(_factor(column) if len(column) >= LEAST_ROWS else together for column in columns)


def coverage(truth: FloatArray, predicted: FloatArray, spread: FloatArray) -> dict[str, float | int | None]:
    """Shares of known targets that lie within one spread and within two of the prediction."""
    ratio = _ratio(truth, predicted, spread)
    known = ratio[~np.isnan(ratio)]
    if not len(known):
        return {"values": 0, "within_1": None, "within_2": None}
    return {"values": len(known), "within_1": float((known <= 1).mean()), "within_2": float((known <= 2).mean())}


def _ratio(truth: FloatArray, predicted: FloatArray, spread: FloatArray) -> FloatArray:
    """Errors in spreads. Networks that agree to the last digit give no infinite one."""
    least = 1e-9 * np.maximum(np.abs(predicted), 1e-30)
    result: FloatArray = np.abs(truth - predicted) / np.maximum(spread, least)
    return result


def _factor(ratio: FloatArray) -> float:
    return max(float(np.quantile(ratio, ONE_DEVIATION)), 1e-3)
