"""A network on layer features after Justus et al. (IEEE Big Data 2018).

Their network predicts the time of one layer from its features and the hardware, and the times of layers add up. There
are no times of layers in the rows, so the network has the features of all layers together: number, bytes and FLOPs of
the ops of each class, options and cluster. It predicts the logarithm of the step. Five networks vote.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from driple.inspector.data.array_types import FloatArray
from time_contest.contestant import Predict, Rows
from time_contest.features import Model, all_features, regression
from time_contest.quiet_fit import quietly

HIDDEN = (64, 32)
NETWORKS = 5


def learn(train: Rows, seed: int) -> Predict:
    """Five networks for all settings."""
    return regression(all_features(train), train, lambda x, y: networks(x, y, seed))


def networks(features: FloatArray, values: FloatArray, seed: int) -> Model:
    """The mean of several networks."""
    from sklearn.neural_network import MLPRegressor

    def one(number: int) -> Any:
        network = MLPRegressor(hidden_layer_sizes=HIDDEN, alpha=0.1, max_iter=400, random_state=seed * 100 + number)
        return quietly(lambda: network.fit(features, values))

    found = [one(number) for number in range(NETWORKS)]
    return lambda asked: np.mean([network.predict(asked) for network in found], axis=0)
