"""Gradient-boosted trees on the workload features; the validation rows choose their number and then join the fit."""

from __future__ import annotations

from typing import Any

import numpy as np

from driple.inspector.data.examples import Examples
from driple.inspector.evaluation.target_baseline import Known, Predict, TargetModel, fit_targets

_TREES = (100, 300)
"""Least and most: with very few, every prediction is near the mean, which few validation rows may favour."""


def fit_trees(train: Examples, val: Examples | None, seed: int) -> Predict:
    """Trees for each target."""
    return fit_targets(learn_trees, train, val, seed)


def learn_trees(train: Known, val: Known | None, seed: int) -> TargetModel:
    """Gradient-boosted trees, as many as the validation rows favour."""
    from sklearn.ensemble import GradientBoostingRegressor

    def grown(count: int, rows: Known) -> Any:
        trees = GradientBoostingRegressor(
            n_estimators=count, learning_rate=0.05, max_depth=3, subsample=0.7, random_state=seed
        )
        return trees.fit(rows.facts, rows.values)

    least, most = _TREES
    first = grown(most, train)
    if val is None:
        return lambda facts: np.asarray(first.predict(facts))
    errors = [np.mean((stage - val.values) ** 2) for stage in first.staged_predict(val.facts)]
    again = grown(least + int(np.argmin(errors[least - 1 :])), train + val)
    return lambda facts: np.asarray(again.predict(facts))
