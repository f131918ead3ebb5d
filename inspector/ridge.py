"""Ridge regression from the facts of one scaled target, as strong as suits rows that were held back."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

FloatArray: TypeAlias = NDArray[np.float64]

STRENGTHS: tuple[float, ...] = tuple(10.0 ** (power / 2) for power in range(-2, 9))
"""From little to one that leaves hardly more than the mean, for standardised facts."""


@dataclass(frozen=True)
class Line:
    """A linear model of one scaled target."""

    weights: tuple[float, ...]
    bias: float

    def predict(self, columns: FloatArray) -> FloatArray:
        """[n] of [n, weights]."""
        return np.asarray(self.bias + columns @ np.asarray(self.weights), dtype=np.float64)


def ridge(
    seen: FloatArray, wanted: FloatArray, rows: NDArray[np.bool_], folds: NDArray[np.int64]
) -> tuple[Line, FloatArray]:
    """The ridge of the strength that errs least on folds held back, and what was said of those.

    Args:
        seen: [n, D], scaled.
        wanted: [n].
        rows: [n], those that are known.
        folds: [n], which rows are held back together.
    """
    held = np.zeros((len(STRENGTHS), len(wanted)))
    for fold in np.unique(folds):
        out = folds == fold
        rest = rows & ~out
        if rest.any():
            weights, biases = solve(seen[rest], wanted[rest], STRENGTHS)
            held[:, out] = weights @ seen[out].T + biases[:, None]
    best = int(((held - wanted)[:, rows] ** 2).sum(axis=1).argmin())
    weights, biases = solve(seen[rows], wanted[rows], STRENGTHS[best : best + 1])
    return Line(tuple(float(weight) for weight in weights[0]), float(biases[0])), held[best]


def straight(
    there: FloatArray, wanted: FloatArray, rows: NDArray[np.bool_], folds: NDArray[np.int64]
) -> tuple[Line, FloatArray]:
    """The line a + b x by least squares, b never negative, and what was said of folds held back."""
    held = np.zeros(len(wanted))
    for fold in np.unique(folds):
        out = folds == fold
        held[out] = _straight(there[rows & ~out], wanted[rows & ~out]).predict(there[out, None])
    return _straight(there[rows], wanted[rows]), held


def _straight(x: FloatArray, y: FloatArray) -> Line:
    if not len(x):
        return Line((0.0,), 0.0)
    varies = float(x.var())
    slope = max(0.0, float(((x - x.mean()) * (y - y.mean())).mean()) / varies) if varies > 0 else 0.0
    return Line((slope,), float(y.mean() - slope * x.mean()))


def solve(x: FloatArray, y: FloatArray, strengths: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    """Weights [S, D] and biases [S] of ridges of each strength, from one decomposition."""
    x_mean, y_mean = x.mean(axis=0), y.mean()
    left, sizes, right = np.linalg.svd(x - x_mean, full_matrices=False)
    turned = left.T @ (y - y_mean)
    weights = np.stack([right.T @ (sizes / (sizes**2 + strength) * turned) for strength in strengths])
    return weights, y_mean - weights @ x_mean
