"""Ridge regression on the workload features and their squares.

The penalty of each target is chosen by the validation rows and by leaving out a part of the training rows at a time:
whole families if the validation rows are of other families. The final fit uses the validation rows too.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from driple.inspector.base_model.ridge import solve
from driple.inspector.data.array_types import FloatArray
from driple.inspector.data.examples import Examples
from driple.inspector.evaluation.target_baseline import Known, Predict, TargetModel, fit_targets

_STRENGTHS = tuple(float(10**power) for power in np.arange(-2, 5.25, 0.25))
_OUTLYING = 3.0
"""Deviations at which features are clipped, so that no square dominates."""
_PARTS = 10
_TINY = 1e-12


def fit_ridge(train: Examples, val: Examples | None, seed: int) -> Predict:
    """A ridge regression of each target."""
    return fit_targets(learn_ridge, train, val, seed)


def learn_ridge(train: Known, val: Known | None, seed: int) -> TargetModel:
    """Ridge regression on the features and their squares."""
    # Squares of rare features are large and would hardly be penalised without scaling again.
    first = _with_squares(train.facts)
    middle, deviation = first.mean(axis=0), first.std(axis=0)
    deviation[deviation == 0] = 1.0

    def columns(facts: FloatArray) -> FloatArray:
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


def _parts(train: Known, val: Known | None) -> NDArray[Any]:
    """The part with which each training row is left out."""
    if val is not None and not set(val.families) & set(train.families) and len(set(train.families)) > 1:
        return train.families
    return np.arange(len(train.values)) % _PARTS


def _all_strengths(facts: FloatArray, values: FloatArray, asked: FloatArray) -> FloatArray:
    """Ridge regressions of every strength: [strengths, rows asked]."""
    weights, biases = solve(facts, values, _STRENGTHS)
    return np.asarray(weights @ asked.T + biases[:, None], dtype=np.float64)


def _with_squares(facts: FloatArray) -> FloatArray:
    near = np.clip(facts, -_OUTLYING, _OUTLYING)
    return np.concatenate([near, near**2], axis=1)
