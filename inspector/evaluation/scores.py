"""Scores of predictions, for every predictor, side and table. docs/guides/metrics.md defines them.

NRMSE
    Root mean square error over the range (greatest minus least) of the true values.
MAPE
    Mean of |predicted - true| / |true|, over the rows whose true value is not 0; `zeros` counts those left out.
R2
    1 - squared errors / squared distances of the true values from their mean.

All are shares, not percent. Smaller is better, for R2 greater. Rows whose truth is null do not count. What cannot be
said (the range of a constant, a target that nobody measured) is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.metrics import COLUMNS, RESOURCES, TARGET_OF_COLUMN
from driple.inspector.data.array_types import FloatArray

OVERALL = "all"


@dataclass(frozen=True, kw_only=True)
class Score:
    """Of one target; or the mean of several, each with the same weight."""

    nrmse: float | None = None
    mape: float | None = None
    r2: float | None = None
    rows: int = 0
    """That have a true and a predicted value."""
    zeros: int = 0
    """Of these, rows whose true value is 0: not in the MAPE."""
    unpredicted: int = 0
    """Rows that have a true value and no predicted one."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Of one predictor on some rows."""

    targets: dict[str, Score]
    """By column, in the order of contracts.metrics."""
    resources: dict[str, Score]
    """By key of the resource: means over its targets."""
    overall: Score
    """Mean over all targets."""

    def rows(self) -> Iterator[tuple[str, Score]]:
        """Lines of a table: every target, every resource, and all."""
        yield from self.targets.items()
        yield from self.resources.items()
        yield OVERALL, self.overall


def scores(truth: FloatArray, predicted: FloatArray, columns: Sequence[str] = COLUMNS) -> Scores:
    """Scores of predictions, both [n, columns] in the targets' own units; NaN where there is no value.

    Raises:
        BadInput: they have other shapes, or a value is infinite.
    """
    for table in (truth, predicted):
        if table.shape != (len(truth), len(columns)):
            raise BadInput(f"values of shape {table.shape}: expected [{len(truth)}, {len(columns)}]")
        if np.isinf(table).any():
            raise BadInput("a value that is infinite cannot be scored")
    found = [_score(truth[:, column], predicted[:, column]) for column in range(len(columns))]
    by_target = dict(zip(columns, found, strict=True))
    by_resource = {
        resource.key: mean_of(score for name, score in by_target.items() if TARGET_OF_COLUMN[name].resource == resource)
        for resource in RESOURCES
    }
    return Scores(targets=by_target, resources=by_resource, overall=mean_of(found))


def nrmse_within(truth: FloatArray, predicted: FloatArray, ranges: FloatArray) -> float | None:
    """Mean over targets of RMSE / range, where ranges [T] are those of more rows than these; None without any.

    For rows that decide something while training: a few of them may hardly differ in a target, and their own range
    would let that target alone decide.
    """
    known = ~np.isnan(truth) & ~np.isnan(predicted)
    squares = np.where(known, predicted - truth, 0.0) ** 2
    used = known.any(axis=0) & (ranges > 0)
    if not used.any():
        return None
    errors = np.sqrt(squares.sum(axis=0)[used] / known.sum(axis=0)[used])
    return float((errors / ranges[used]).mean())


def ranges_of(*truths: FloatArray) -> FloatArray:
    """[T]: greatest minus least value of each target over all rows; 0 where there is none."""
    rows = np.concatenate(truths)
    known = ~np.isnan(rows)
    highest = np.where(known, rows, -np.inf).max(axis=0, initial=-np.inf)
    lowest = np.where(known, rows, np.inf).min(axis=0, initial=np.inf)
    return np.where(known.any(axis=0), highest - lowest, 0.0)


def mean_of(parts: Iterable[Score]) -> Score:
    """The mean of several scores, each with the same weight; what is None in one does not count there."""
    kept = list(parts)
    return Score(
        nrmse=_mean(part.nrmse for part in kept),
        mape=_mean(part.mape for part in kept),
        r2=_mean(part.r2 for part in kept),
        rows=sum(part.rows for part in kept),
        zeros=sum(part.zeros for part in kept),
        unpredicted=sum(part.unpredicted for part in kept),
    )


def _score(truth: FloatArray, predicted: FloatArray) -> Score:
    known = ~np.isnan(truth)
    both = known & ~np.isnan(predicted)
    true, error = truth[both], (predicted - truth)[both]
    counts = {"rows": len(true), "zeros": int((true == 0).sum()), "unpredicted": int((known & ~both).sum())}
    if not len(true):
        return Score(**counts)
    other = true != 0
    mape = float(np.abs(error[other] / true[other]).mean()) if other.any() else None
    width = float(true.max() - true.min())
    if width == 0:
        return Score(mape=mape, **counts)
    relative = error / width  # squares of tiny times would vanish
    squares = float((relative**2).mean())
    return Score(nrmse=squares**0.5, mape=mape, r2=1 - squares / float((true / width).var()), **counts)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
