"""Gradient-boosted trees on all features of workload, graph and cluster; they predict the logarithm of the step.

Source: GradientBoostingRegressor of scikit-learn.
"""

from __future__ import annotations

import numpy as np

from driple.inspector.data.array_types import FloatArray
from time_contest.contestant import Predict, Rows
from time_contest.features import Model, all_features, regression


def learn(train: Rows, seed: int) -> Predict:
    """Trees for all settings."""

    def fit(features: FloatArray, values: FloatArray) -> Model:
        from sklearn.ensemble import GradientBoostingRegressor

        trees = GradientBoostingRegressor(
            n_estimators=300, learning_rate=0.05, max_depth=4, subsample=0.7, max_features=0.3, random_state=seed
        ).fit(features, values)
        return lambda asked: np.asarray(trees.predict(asked))

    return regression(all_features(train), train, fit)
