"""Support vector regression, and a table of other regressions, of the logarithm of the step.

Parameters are chosen by cross-validation in which a family of models is never on both sides.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from driple.inspector.data.array_types import FloatArray
from time_contest.contestant import Predict, Rows
from time_contest.features import Model, Table, regression, total_features
from time_contest.justus import networks

FOLDS = 5

Regress = Callable[[FloatArray, FloatArray, list[str], int], Model]
"""Features [n, F], values [n], the family of each row, and a seed."""


def support_vectors(features: FloatArray, values: FloatArray, families: list[str], seed: int) -> Model:
    from sklearn.svm import SVR

    grid = {"C": [1, 10, 100], "gamma": ["auto", 0.01, 0.05, 0.2], "epsilon": [0.05]}
    return _searched(SVR(), grid, features, values, families)


def ridge(features: FloatArray, values: FloatArray, families: list[str], seed: int) -> Model:
    from sklearn.linear_model import Ridge

    return _searched(Ridge(), {"alpha": [0.1, 1, 10, 100, 1000]}, features, values, families)


def network(features: FloatArray, values: FloatArray, families: list[str], seed: int) -> Model:
    return networks(features, values, seed)


REGRESSIONS: dict[str, Regress] = {"ridge": ridge, "svr": support_vectors, "mlp": network}


def _searched(model: object, grid: object, features: FloatArray, values: FloatArray, families: list[str]) -> Model:
    from sklearn.model_selection import GridSearchCV, GroupKFold

    several = len(set(families)) > 1
    folds = GroupKFold(min(FOLDS, len(set(families)))) if several else min(FOLDS, len(values))
    search = GridSearchCV(model, grid, cv=folds, scoring="neg_mean_absolute_error")
    search.fit(features, values, **({"groups": families} if several else {}))
    return lambda asked: np.asarray(search.predict(asked))


def regressed(table: Table, train: Rows, how: str, seed: int) -> Predict:
    """A regression by name on a table of features."""
    families = [row.family for row in train]
    return regression(table, train, lambda x, y: REGRESSIONS[how](x, y, families, seed))


def learn_totals(train: Rows, seed: int) -> Predict:
    """On totals of the graph, without an embedding: what an embedding must beat."""
    return regressed(total_features(train), train, "svr", seed)
