"""Scores of predictions, for every predictor, side and table. docs/guides/metrics.md defines them.

NRMSE
    Root mean square error over the range (greatest minus least) of the true values.
MAPE
    Mean of |predicted - true| / |true|, over the rows whose true value is not 0; `zeros` counts those left out.
R2
    1 - squared errors / squared distances of the true values from their mean.

All are shares, not percent. Smaller is better, for R2 greater. Rows without a true value do not count. A score that is
not defined (a constant target, a target that was not measured) is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.metrics import COLUMNS, RESOURCES, TARGET_OF_COLUMN
from driple.inspector.data.array_types import FloatArray

OVERALL = "all"
_COUNTS = ("rows", "zeros", "unpredicted")


@dataclass(frozen=True, kw_only=True)
class Score:
    """Scores of one target, or the mean of several, each with the same weight."""

    nrmse: float | None = None
    mape: float | None = None
    r2: float | None = None
    rows: int = 0
    """With a true and a predicted value."""
    zeros: int = 0
    """Of these, with a true value of 0: not in the MAPE."""
    unpredicted: int = 0
    """With a true value and no predicted one: in no score."""


@dataclass(frozen=True, kw_only=True)
class Scores:
    """Scores of one predictor on some rows."""

    targets: dict[str, Score]
    resources: dict[str, Score]
    """Means over the targets of a resource, by its key."""
    overall: Score

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
    """Mean over targets of RMSE / range, with given ranges [T]; None without any.

    For validation rows: a target in which few rows hardly differ would decide alone if divided by its own range.
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
    """The mean of several scores, each with the same weight, without those that are None; counts are added up."""
    kept = list(parts)
    means: dict[str, Any] = {name: _mean(getattr(part, name) for part in kept) for name in ("nrmse", "mape", "r2")}
    return Score(**means, **{name: sum(getattr(part, name) for part in kept) for name in _COUNTS})


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
