"""Errors of predicted step times in percent, their intervals over families, and the noise of measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driple.inspector.data.array_types import FloatArray
from driple.inspector.time.step_distribution import LEVEL, StepDistribution
from driple.inspector.time.time_rows import TimeRow

RESAMPLES = 2000
CONFIDENCE = 0.95


@dataclass(frozen=True, kw_only=True)
class Error:
    """Of the rows with a prediction."""

    rows: int
    predicted: int
    """Of the rows, those with a prediction."""
    mape: float
    median: float
    low: float | None
    """Of the mean: both ends of a bootstrap interval over families; None with one family."""
    high: float | None


def percent_errors(measured: FloatArray, predicted: FloatArray) -> FloatArray:
    """100 * |predicted / measured - 1|; NaN without a prediction."""
    return np.asarray(100 * np.abs(predicted / measured - 1), dtype=np.float64)


def error_of(errors: FloatArray, families: Sequence[str]) -> Error | None:
    """Summary of percent errors [n]; None without any prediction."""
    known = ~np.isnan(errors)
    if not known.any():
        return None
    own = errors[known]
    low, high = bootstrap(own, [family for family, kept in zip(families, known.tolist(), strict=True) if kept])
    return Error(
        rows=len(errors),
        predicted=len(own),
        mape=float(own.mean()),
        median=float(np.median(own)),
        low=low,
        high=high,
    )


def bootstrap(errors: FloatArray, families: Sequence[str]) -> tuple[float | None, float | None]:
    """Interval of the mean, if families had been drawn anew, with replacement."""
    names, number = np.unique(np.array(families), return_inverse=True)
    if len(names) < 2:
        return None, None
    sums, counts = np.bincount(number, errors), np.bincount(number)
    drawn = np.random.default_rng(0).integers(len(names), size=(RESAMPLES, len(names)))
    means = sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1)
    low, high = np.quantile(means, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return float(low), float(high)


def noise_floor(rows: Sequence[TimeRow]) -> float | None:
    """Percent error of one run as a prediction: against the mean of the others of its row; None without repetitions."""
    found = []
    for row in rows:
        steps = np.array(row.repeats)
        if len(steps) > 1:
            others = (steps.sum() - steps) / (len(steps) - 1)
            found += percent_errors(others, steps).tolist()
    return float(np.mean(found)) if found else None


def coverage(
    measured: FloatArray, predicted: FloatArray, families: Sequence[str], level: float = LEVEL
) -> float | None:
    """Percent of rows within their interval, which has the errors of all other families; None with one family."""
    errors = np.log(measured / predicted)
    inside = []
    for place, family in enumerate(families):
        others = [error for error, other in zip(errors.tolist(), families, strict=True) if other != family]
        if others:
            low, high = StepDistribution.of(float(predicted[place]), others).interval(level)
            inside.append(low <= measured[place] <= high)
    return 100 * float(np.mean(inside)) if inside else None
