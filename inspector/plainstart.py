"""A plain model for the network to start from: ridge regression from the facts, put into its straight path.

    weights = (X'X + strength I)^-1 X'y          X: facts, y: scaled targets, both about their means

for each target by itself, on the rows that have it. The strength is the one of a fixed list that errs least on rows
held back. These are the validation rows, and the training rows in turn: whole families at a time where families are
known, since the models that an inspector is asked about are of families that it has not seen. On simulated datasets
both together did better on test rows than either alone. The network begins as this model and learns what it leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]

STRENGTHS: tuple[float, ...] = tuple(10.0 ** (power / 2) for power in range(-4, 9))
"""From almost none to one that leaves hardly more than the mean, for standardised facts."""
FOLDS = 10


def folds_of(names: Sequence[object], rows: int) -> NDArray[np.int64]:
    """The fold of each row: rows of one name stay together; without two names, row by row in turn."""
    known = sorted({str(name) for name in names if name is not None})
    if len(known) < 2 or any(name is None for name in names):
        return np.arange(rows) % min(FOLDS, max(rows, 1))
    number = {name: place % FOLDS for place, name in enumerate(known)}
    return np.asarray([number[str(name)] for name in names], dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Rows:
    """What a ridge sees of some rows."""

    facts: FloatArray
    """[n, D], standardised."""
    targets: FloatArray
    """[n, T], scaled; what the mask leaves out is not looked at."""
    mask: NDArray[np.bool_]
    """[n, T]: where a row has the target."""

    @classmethod
    def of(cls, facts: Any, targets: Any, mask: Any) -> Rows:
        """From tensors."""
        return cls(facts.double().cpu().numpy(), targets.double().cpu().numpy(), mask.cpu().numpy().astype(bool))

    def with_target(self, target: int) -> tuple[FloatArray, FloatArray]:
        """Facts and target of the rows that have it."""
        rows = self.mask[:, target]
        return self.facts[rows], self.targets[rows, target]


def ridge(train: Rows, folds: NDArray[np.int64], val: Rows | None = None) -> tuple[FloatArray, FloatArray]:
    """Weights [D, T] and biases [T] of the best ridge for each target.

    Args:
        train: rows to learn from.
        folds: [n], which of them are held back together.
        val: rows that are always held back.
    """
    weights = np.zeros((train.facts.shape[1], train.targets.shape[1]))
    biases = np.zeros(train.targets.shape[1])
    for target in range(train.targets.shape[1]):
        x, y = train.with_target(target)
        if len(y):
            errors = _errors(x, y, folds[train.mask[:, target]], None if val is None else val.with_target(target))
            found = _solve(x, y, (STRENGTHS[int(np.argmin(errors))],))
            weights[:, target], biases[target] = found[0][0], found[1][0]
    return weights, biases


def _errors(
    x: FloatArray, y: FloatArray, folds: NDArray[np.int64], val: tuple[FloatArray, FloatArray] | None
) -> FloatArray:
    """Squared errors of each strength on rows held back."""
    errors = np.zeros(len(STRENGTHS))
    errors[:-1] = 1e-9  # where nothing can be held back: the strongest
    held_back = [(x[folds == fold], y[folds == fold], folds != fold) for fold in np.unique(folds)]
    if val is not None:
        held_back.append((*val, np.ones(len(y), dtype=bool)))
    for facts, targets, rest in held_back:
        if rest.any():
            weights, biases = _solve(x[rest], y[rest], STRENGTHS)
            errors += ((facts @ weights.T + biases - targets[:, None]) ** 2).sum(axis=0)
    return errors


def _solve(x: FloatArray, y: FloatArray, strengths: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    """Weights [S, D] and biases [S] for each strength, from one decomposition."""
    x_mean, y_mean = x.mean(axis=0), y.mean()
    left, sizes, right = np.linalg.svd(x - x_mean, full_matrices=False)
    turned = left.T @ (y - y_mean)
    weights = np.stack([right.T @ (sizes / (sizes**2 + strength) * turned) for strength in strengths])
    return weights, y_mean - weights @ x_mean


def plain_start(network: Any, train: Rows, folds: NDArray[np.int64], val: Rows, *, fresh: bool = True) -> None:
    """Sets the network's straight path, so that the network predicts what the ridge does.

    A fresh network's other path is made to add nothing at first. One that has learned before keeps it: then the rows'
    targets must be what its predictions leave over, and the ridge of these is added.
    """
    import torch

    weights, biases = ridge(train, folds, val)
    with torch.no_grad():
        straight = network.straight
        if fresh:
            for layer in (straight, network.mlp[-1]):
                layer.weight.zero_()
                layer.bias.zero_()
        straight.weight += torch.as_tensor(weights.T).to(straight.weight)
        straight.bias += torch.as_tensor(biases).to(straight.bias)
