"""Ridge regression of scaled targets on the workload features, its strength chosen by out-of-fold error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driple.inspector.data.array_types import BoolArray, FloatArray, IntArray

STRENGTHS: tuple[float, ...] = tuple(10.0 ** (power / 2) for power in range(-2, 9))
"""From weak to one that leaves little more than the mean, for standardised features."""


@dataclass(frozen=True)
class LinearModel:
    """A linear model of one scaled target."""

    weights: tuple[float, ...]
    bias: float

    def predict(self, columns: FloatArray) -> FloatArray:
        """[n, weights] to [n]."""
        return np.asarray(self.bias + columns @ np.asarray(self.weights), dtype=np.float64)


def ridges(seen: FloatArray, wanted: FloatArray, folds: IntArray) -> tuple[tuple[LinearModel | None, ...], FloatArray]:
    """The ridge of each target with the least out-of-fold error, and the out-of-fold predictions [n, T].

    Args:
        seen: [n, D], scaled.
        wanted: [n, T]; NaN where null. A target that is null in all rows has no ridge.
        folds: [n]: rows of a fold are held out together.
    """
    lines: list[LinearModel | None] = [None] * wanted.shape[1]
    said = np.zeros(wanted.shape)
    known = ~np.isnan(wanted)
    for rows in np.unique(known.T[known.any(axis=0)], axis=0):  # targets with nulls in the same rows together
        places = np.flatnonzero((known == rows[:, None]).all(axis=0))
        found = _Ridges(seen[rows], wanted[np.ix_(rows, places)], STRENGTHS)
        held = np.zeros((len(STRENGTHS), len(wanted), len(places)))
        for fold in np.unique(folds):
            out = folds == fold
            if (rows & ~out).any():
                weights, biases = found.without(out[rows])
                held[:, out] = seen[out] @ weights + biases[:, None]
        best = ((held - wanted[:, places])[:, rows] ** 2).sum(axis=1).argmin(axis=0)
        for number, (place, chosen) in enumerate(zip(places, best, strict=True)):
            weights, biases = found.weights[chosen, :, number], found.biases[chosen, number]
            lines[place] = LinearModel(tuple(map(float, weights)), float(biases))
            said[:, place] = held[chosen, :, number]
    return tuple(lines), said


def straight(there: FloatArray, wanted: FloatArray, rows: BoolArray, folds: IntArray) -> tuple[LinearModel, FloatArray]:
    """The line a + b x by least squares with b >= 0, and its out-of-fold predictions."""
    held = np.zeros(len(wanted))
    for fold in np.unique(folds):
        out = folds == fold
        held[out] = _straight(there[rows & ~out], wanted[rows & ~out]).predict(there[out, None])
    return _straight(there[rows], wanted[rows]), held


def _straight(x: FloatArray, y: FloatArray) -> LinearModel:
    if not len(x):
        return LinearModel((0.0,), 0.0)
    varies = float(x.var())
    slope = max(0.0, float(((x - x.mean()) * (y - y.mean())).mean()) / varies) if varies > 0 else 0.0
    return LinearModel((slope,), float(y.mean() - slope * x.mean()))


def solve(x: FloatArray, y: FloatArray, strengths: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    """Weights [S, D] and biases [S] of ridges of each strength, from one decomposition."""
    found = _Ridges(x, y[:, None], strengths)
    return found.weights[..., 0], found.biases[..., 0]


class _Ridges:
    """Ridges of T targets y [n, T] from x [n, D], of each strength: weights [S, D, T] and biases [S, T]."""

    def __init__(self, x: FloatArray, y: FloatArray, strengths: Sequence[float]) -> None:
        self._center, self._y_mean = x.mean(axis=0), y.mean(axis=0)
        self._left, self._sizes, self._right = np.linalg.svd(x - self._center, full_matrices=False)
        self._pull = self._sizes / (self._sizes**2 + np.asarray(strengths)[:, None])
        self.weights = self._weights(self._left, y - self._y_mean)
        self.biases = self._y_mean - self._center @ self.weights
        self._missed = (y - self._y_mean) - (x - self._center) @ self.weights

    def _weights(self, left: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray(self._right.T @ (self._pull[..., None] * (left.T @ y)), dtype=np.float64)

    def without(self, rows: BoolArray) -> tuple[FloatArray, FloatArray]:
        """Weights and biases of the fit without these rows r, without another decomposition.

        Changing y_r so that the fit of all rows has no residual there removes their effect. With H the hat matrix, the
        change is (1 - H_rr)^-1 times the residual.
        """
        left, count = self._left[rows], len(self._left)
        made = 1 / count + (left * (self._pull * self._sizes)[:, None]) @ left.T
        changed = np.linalg.solve(np.eye(len(left)) - made, self._missed[:, rows])
        weights = self.weights - self._weights(left, changed)
        return weights, self._y_mean - changed.sum(axis=1) / count - self._center @ weights
