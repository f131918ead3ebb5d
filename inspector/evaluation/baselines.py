"""Plain predictors that every inspector is compared with, on the same facts, rows and scale of targets.

`mean`
    The mean of the training rows.
`ridge`
    Linear in the facts and their squares, with a penalty.
`trees`
    Gradient-boosted trees on the facts.

Ridge and trees learn logarithms of targets (scaling.py). What is free in them is chosen for each target by rows that
they did not learn from, as an inspector's epoch is: the number of trees by the validation rows, the penalty by these
and by leaving out a part of the training rows at a time. The parts are families of models if the validation rows are of
other families, so that what is chosen for new families is tried on new families. With that choice made, they learn from
the validation rows too, as the plain model of an inspector does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driple.contracts.errors import UnknownName
from driple.inspector.base_model.ridge import solve
from driple.inspector.data.examples import Examples, usable
from driple.inspector.data.scaling import TargetScaler, WorkloadScaler
from driple.inspector.data.workload_features import workload_feature_table
from driple.inspector.training.threads import solver_threads

MEAN = "mean"
RIDGE = "ridge"
TREES = "trees"
BASELINES = (MEAN, RIDGE, TREES)

Predict = Callable[[Examples], NDArray[np.float64]]
"""Examples to [n, 12], in the targets' own units; NaN where a target could not be learned."""

_Line = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Columns of facts [n, D] to one scaled target [n]."""

_STRENGTHS = tuple(float(10**power) for power in np.arange(-2, 5.25, 0.25))
_OUTLYING = 3.0
"""Deviations: a fact further out counts as this far, or its square would rule all others."""
_PARTS = 10
_TINY = 1e-12
_TREES = (100, 300)
"""Least and most: with very few, every prediction is near the mean, which few validation rows may well favour."""


@dataclass(frozen=True)
class _Known:
    """The rows of one target that have a value."""

    facts: NDArray[np.float64]
    values: NDArray[np.float64]
    families: NDArray[np.object_]

    def __add__(self, other: _Known) -> _Known:
        pairs = ((getattr(self, name), getattr(other, name)) for name in ("facts", "values", "families"))
        return _Known(*(np.concatenate(pair) for pair in pairs))


def fit(name: str, train: Examples, val: Examples | None = None, seed: int = 0) -> Predict:
    """A baseline that has learned from the training rows.

    Args:
        name: one of BASELINES.
        train: what it learns from.
        val: what its penalty or number of trees is chosen by.
        seed: of the trees.

    Raises:
        UnknownName: there is none of that name.
    """
    if name not in BASELINES:
        raise UnknownName("baseline", name, BASELINES)
    wanted = usable(train)
    if name == MEAN:
        known = ~np.isnan(train.targets())
        sums = np.where(known, train.targets(), 0.0).sum(axis=0)
        row = np.where(wanted, sums / np.maximum(known.sum(axis=0), 1), np.nan)
        return lambda examples: np.tile(row, (len(examples), 1))
    learn = _ridge if name == RIDGE else _trees
    facts = WorkloadScaler.fit(workload_feature_table(train.items))
    scale = TargetScaler.fit("log", train.targets(), wanted, train.columns)
    lines: dict[int, _Line] = {}
    sides = [_scaled(side, facts, scale) for side in (train, val) if side is not None and len(side)]
    for column in np.flatnonzero(wanted):
        rows, *chosen_by = (_known(seen, values[:, column], families) for seen, values, families in sides)
        with solver_threads(len(rows.values)):
            lines[int(column)] = learn(rows, chosen_by[0] if chosen_by and len(chosen_by[0].values) else None, seed)

    def predict(examples: Examples) -> NDArray[np.float64]:
        seen = facts.transform(workload_feature_table(examples.items))
        scaled = np.full((len(examples), len(wanted)), np.nan)
        if len(examples):
            for column, line in lines.items():
                scaled[:, column] = line(seen)
        return scale.inverse(scaled)

    return predict


def _scaled(examples: Examples, facts: WorkloadScaler, scale: TargetScaler) -> tuple[NDArray[Any], ...]:
    families = np.array([str(item.workload.get("family")) for item in examples.items], dtype=object)
    return facts.transform(workload_feature_table(examples.items)), scale.transform(examples.targets()), families


def _known(facts: NDArray[np.float64], values: NDArray[np.float64], families: NDArray[np.object_]) -> _Known:
    there = ~np.isnan(values)
    return _Known(facts[there], values[there], families[there])


def _ridge(train: _Known, val: _Known | None, seed: int) -> _Line:
    # Squares of facts that are rare would be large, and so hardly penalised, if they were not scaled again.
    first = _with_squares(train.facts)
    middle, deviation = first.mean(axis=0), first.std(axis=0)
    deviation[deviation == 0] = 1.0

    def columns(facts: NDArray[np.float64]) -> NDArray[np.float64]:
        return (_with_squares(facts) - middle) / deviation

    seen, values = columns(train.facts), train.values
    parts = _parts(train, val)
    errors = np.zeros(len(_STRENGTHS))
    for part in set(parts):
        out = parts == part
        tried = _all_strengths(seen[~out], values[~out], seen[out])
        errors += ((tried - values[out]) ** 2).sum(axis=1)
    worth = errors / max(errors.min(), _TINY)
    if val is not None:
        errors = ((_all_strengths(seen, values, columns(val.facts)) - val.values) ** 2).sum(axis=1)
        worth = worth + errors / max(errors.min(), _TINY)
    both = train if val is None else train + val
    weights, biases = solve(columns(both.facts), both.values, (_STRENGTHS[int(worth.argmin())],))
    return lambda facts: columns(facts) @ weights[0] + biases[0]


def _parts(train: _Known, val: _Known | None) -> NDArray[Any]:
    """Of each training row, the part with which it is left out."""
    of_others = val is not None and not set(val.families) & set(train.families)
    if of_others and len(set(train.families)) > 1:
        return train.families
    return np.arange(len(train.values)) % _PARTS


def _all_strengths(
    facts: NDArray[np.float64], values: NDArray[np.float64], asked: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Ridge regressions of every strength: [strengths, rows asked]."""
    weights, biases = solve(facts, values, _STRENGTHS)
    return np.asarray(weights @ asked.T + biases[:, None], dtype=np.float64)


def _with_squares(facts: NDArray[np.float64]) -> NDArray[np.float64]:
    near = np.clip(facts, -_OUTLYING, _OUTLYING)
    return np.concatenate([near, near**2], axis=1)


def _trees(train: _Known, val: _Known | None, seed: int) -> _Line:
    from sklearn.ensemble import GradientBoostingRegressor

    def grown(count: int, rows: _Known) -> Any:
        trees = GradientBoostingRegressor(
            n_estimators=count, learning_rate=0.05, max_depth=3, subsample=0.7, random_state=seed
        )
        return trees.fit(rows.facts, rows.values)

    least, most = _TREES
    first = grown(most, train)
    if val is None:
        return lambda facts: np.asarray(first.predict(facts))
    errors = [_error(stage, val.values) for stage in first.staged_predict(val.facts)]
    again = grown(least + int(np.argmin(errors[least - 1 :])), train + val)
    return lambda facts: np.asarray(again.predict(facts))


def _error(predicted: NDArray[np.float64], true: NDArray[np.float64]) -> float:
    return float(((predicted - true) ** 2).mean())
