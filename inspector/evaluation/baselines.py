"""The table of baselines that every inspector is compared with: same features, rows and scale of targets.

A new baseline is a file with a function like `fit_mean` and a line in BASELINES.
"""

from __future__ import annotations

from collections.abc import Callable

from driple.contracts.errors import UnknownName
from driple.inspector.data.examples import Examples
from driple.inspector.evaluation.mean_baseline import fit_mean
from driple.inspector.evaluation.ridge_baseline import fit_ridge
from driple.inspector.evaluation.target_baseline import Predict
from driple.inspector.evaluation.tree_baseline import fit_trees

MEAN, RIDGE, TREES = "mean", "ridge", "trees"

BASELINES: dict[str, Callable[[Examples, Examples | None, int], Predict]] = {
    MEAN: fit_mean,
    RIDGE: fit_ridge,
    TREES: fit_trees,
}


def fit(name: str, train: Examples, val: Examples | None = None, seed: int = 0) -> Predict:
    """A baseline fitted to the training rows; the validation rows choose hyper-parameters.

    Raises:
        UnknownName: there is no such baseline.
    """
    if name not in BASELINES:
        raise UnknownName("baseline", name, tuple(BASELINES))
    return BASELINES[name](train, val, seed)
