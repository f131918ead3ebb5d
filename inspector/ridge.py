"""Ridge regression from the facts of scaled targets, as strong as suits rows that were held back."""

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


def ridges(
    seen: FloatArray, wanted: FloatArray, folds: NDArray[np.int64]
) -> tuple[tuple[Line | None, ...], FloatArray]:
    """Of each target the ridge of the strength that errs least on folds held back, and what was said of those [n, T].

    Args:
        seen: [n, D], scaled.
        wanted: [n, T]; NaN where null. A target that is null in all rows has no ridge.
        folds: [n], which rows are held back together.
    """
    lines: list[Line | None] = [None] * wanted.shape[1]
    said = np.zeros(wanted.shape)
    known = ~np.isnan(wanted)
    for rows in np.unique(known.T[known.any(axis=0)], axis=0):  # targets that are null in the same rows, together
        places = np.flatnonzero((known == rows[:, None]).all(axis=0))
        held = np.zeros((len(STRENGTHS), len(wanted), len(places)))
        for fold in np.unique(folds):
            out = folds == fold
            rest = rows & ~out
            if rest.any():
                weights, biases = solve(seen[rest], wanted[np.ix_(rest, places)], STRENGTHS)
                held[:, out] = seen[out] @ weights + biases[:, None]
        best = ((held - wanted[:, places])[:, rows] ** 2).sum(axis=1).argmin(axis=0)
        for number, (place, chosen) in enumerate(zip(places, best, strict=True)):
            weights, biases = solve(seen[rows], wanted[rows, place], STRENGTHS[chosen : chosen + 1])
            lines[place] = Line(tuple(float(weight) for weight in weights[0]), float(biases[0]))
            said[:, place] = held[chosen, :, number]
    return tuple(lines), said


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
    """Weights [S, D] and biases [S] of ridges of each strength, from one decomposition; with T last for y [n, T]."""
    x_mean, y_mean = x.mean(axis=0), y.mean(axis=0)
    left, sizes, right = np.linalg.svd(x - x_mean, full_matrices=False)
    turned = (left.T @ (y - y_mean)).T
    weights = np.stack([right.T @ (sizes / (sizes**2 + strength) * turned).T for strength in strengths])
    return weights, y_mean - np.tensordot(weights, x_mean, axes=(1, 0))
