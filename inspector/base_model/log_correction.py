"""Corrects what a simulation says of a job by a few numbers for each target, learned from measured jobs.

    log(corrected) = log(simulated) + c . x,  x = [1, is_async, own, traffic, ops, traffic * is_async]

`own` is log(simulated / simulated step) of a duration, and log(simulated) of a level. `traffic` is the logarithm of the
time that the traffic of a step needs on a link, as a share of the simulated step. `ops` is log(ops of a step). The x
are scaled to mean 0 and deviation 1. Coefficients minimise absolute errors of the logarithm, with a penalty that is as
strong as `PENALTY` rows, so that a few rows change little.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from driple.contracts.metrics import COLUMNS, DURATION, TARGET_OF_COLUMN
from driple.inspector.data.array_types import BoolArray, FloatArray

TERMS = ("1", "is_async", "own", "traffic", "ops", "traffic * is_async")
PENALTY = 3.0
OF_CONSTANT = 0.1
"""Share of the penalty for the constant term."""
TURNS = 6
"""Iterations of reweighted least squares."""
EXACT = 0.05
"""Error of the logarithm below which the weight of a row does not grow."""
WEIGHT = 0.1
"""Weight of a row with an error of 1."""
OUTLIER = 1.5
"""Greatest error of the logarithm that a row counts with."""
MOST = 1.2
"""Greatest correction of a logarithm."""
LEAST = 1e-4
"""Share of the median simulated value: smaller ones, such as an idle time of 0, count as this."""
LINK_BYTES_PER_S = 1.2e8
"""Unit of traffic times, that of a link of 1 Gbit/s in each direction. Another link only moves the constant term."""


class Simulated(NamedTuple):
    """What a simulation says of n jobs."""

    values: FloatArray
    """[n, columns] in the targets' own units, NaN where there is none."""
    step_s: FloatArray
    moved_bytes: FloatArray
    """Bytes that a worker sends and receives in a step."""
    ops: FloatArray
    """Of a step."""
    is_async: FloatArray
    """1 or 0."""


@dataclass(frozen=True)
class LogCorrection:
    """Coefficients of each target."""

    columns: tuple[str, ...]
    coefficients: tuple[tuple[float, ...] | None, ...]
    """[columns][TERMS]; None of a target without enough rows, which is not corrected."""
    means: tuple[tuple[float, ...], ...]
    """[columns][TERMS] of the training rows; likewise below."""
    deviations: tuple[tuple[float, ...], ...]
    floors: tuple[float, ...]
    """By column, the least simulated value."""
    ranges: tuple[tuple[float, float], ...]
    """By column, least and greatest measured value. Levels stay within: processors and links have limits."""

    def correct(self, simulated: Simulated) -> FloatArray:
        """[n, columns]: corrected values, NaN where nothing is simulated."""
        found = simulated.values.copy()
        for place, (column, own) in enumerate(zip(self.columns, self.coefficients, strict=True)):
            if own is None:
                continue
            log_value, terms = _terms(simulated, place, column, self.floors[place])
            scaled = (terms - self.means[place]) / self.deviations[place]
            value = np.exp(log_value + np.clip(scaled @ np.asarray(own), -MOST, MOST))
            if TARGET_OF_COLUMN[column].kind != DURATION:
                value = np.clip(value, *self.ranges[place])
            found[:, place] = np.where(np.isnan(simulated.values[:, place]), np.nan, value)
        return found


def fit_correction(
    simulated: Simulated, targets: FloatArray, weights: FloatArray | None = None, columns: Sequence[str] = COLUMNS
) -> LogCorrection:
    """Learns a correction.

    Args:
        simulated: of n jobs.
        targets: [n, columns], measured; NaN where null.
        weights: [n], of the rows; default 1.
        columns: names of the targets.
    """
    weights = np.ones(len(targets)) if weights is None else weights
    fitted = [_fit_one(simulated, targets[:, place], weights, place, name) for place, name in enumerate(columns)]
    return LogCorrection(tuple(columns), *zip(*fitted, strict=True))


def _fit_one(
    simulated: Simulated, target: FloatArray, weights: FloatArray, place: int, column: str
) -> tuple[tuple[float, ...] | None, tuple[float, ...], tuple[float, ...], float, tuple[float, float]]:
    values = simulated.values[:, place]
    some: BoolArray = ~np.isnan(values)
    floor = LEAST * float(np.median(values[some])) + 1e-9 if some.any() else 1e-9
    used = some & (target > 0)
    none = (0.0,) * len(TERMS)
    if used.sum() < 2:
        return None, none, (1.0,) * len(TERMS), floor, (0.0, np.inf)
    log_value, terms = _terms(simulated, place, column, floor)
    rows, known = terms[used], weights[used]
    means, deviations = rows.mean(axis=0), rows.std(axis=0)
    means[0], deviations[0] = 0.0, 1.0
    deviations[deviations == 0] = 1.0
    scaled = (rows - means) / deviations
    wanted = np.clip(np.log(target[used]) - log_value[used], -OUTLIER, OUTLIER)
    penalty = PENALTY * np.diag([OF_CONSTANT, *[1.0] * (len(TERMS) - 1)])
    count = known
    for _ in range(TURNS + 1):
        weighted = scaled * count[:, None]
        found = np.linalg.solve(weighted.T @ scaled + penalty, weighted.T @ wanted)
        count = known * WEIGHT / np.maximum(np.abs(scaled @ found - wanted), EXACT)
    limits = float(target[used].min()), float(target[used].max())
    return tuple(found.tolist()), tuple(means.tolist()), tuple(deviations.tolist()), floor, limits


def _terms(simulated: Simulated, place: int, column: str, floor: float) -> tuple[FloatArray, FloatArray]:
    """The logarithm of the simulated values, and [n, TERMS]."""
    log_value = np.log(np.maximum(np.nan_to_num(simulated.values[:, place], nan=floor), floor))
    log_step = np.log(simulated.step_s)
    own = log_value - log_step if TARGET_OF_COLUMN[column].kind == DURATION else log_value
    traffic = np.log(simulated.moved_bytes / (2 * LINK_BYTES_PER_S)) - log_step
    ones, is_async = np.ones(len(own)), simulated.is_async
    return log_value, np.stack(
        [ones, is_async, own, traffic, np.log(np.maximum(simulated.ops, 1.0)), traffic * is_async], axis=1
    )
