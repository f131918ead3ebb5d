"""Calibration of the spread of an ensemble.

Networks trained on the same rows agree too well. So their spread is multiplied by a factor per target, with which 68 %
of the validation errors lie within one spread. `coverage` counts test errors within one and two spreads: ideally 68 and
95 %.
"""

from __future__ import annotations

import numpy as np

from driple.inspector.data.array_types import FloatArray

ONE_DEVIATION = 0.683
LEAST_ROWS = 20
"""Fewest validation rows of a target with its own factor; others share one."""


def factors(truth: FloatArray, predicted: FloatArray, spread: FloatArray) -> tuple[float, ...]:
    """The factor of each target, from validation rows; all [n, T], NaN where unknown."""
    ratio = _ratio(truth, predicted, spread)
    together = _factor(ratio) if not np.isnan(ratio).all() else 1.0
    return tuple(_factor(own) if (~np.isnan(own)).sum() >= LEAST_ROWS else together for own in ratio.T)


def coverage(truth: FloatArray, predicted: FloatArray, spread: FloatArray) -> dict[str, float | int | None]:
    """Shares of known targets that lie within one spread and within two of the prediction."""
    ratio = _ratio(truth, predicted, spread)
    known = ratio[~np.isnan(ratio)]
    if not len(known):
        return {"values": 0, "within_1": None, "within_2": None}
    return {"values": len(known), "within_1": float((known <= 1).mean()), "within_2": float((known <= 2).mean())}


def _ratio(truth: FloatArray, predicted: FloatArray, spread: FloatArray) -> FloatArray:
    least = 1e-9 * np.maximum(np.abs(predicted), 1e-30)  # for networks that agree to the last digit
    return np.asarray(np.abs(truth - predicted) / np.maximum(spread, least), dtype=np.float64)


def _factor(ratio: FloatArray) -> float:
    return max(float(np.nanquantile(ratio, ONE_DEVIATION)), 1e-3)
