"""Kernel ridge regression from the facts: what is like a training row is as that row was.

    y(x) = mean + sum over training rows i of w_i * exp(-d(x, x_i)^2 / (2 width^2))

d is the root mean square distance over the scaled facts. Width and penalty are those that err least on rows held back.
Far from all training rows it says their mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from driple.contracts.errors import BadInput
from driple.contracts.metrics import COLUMNS

FloatArray: TypeAlias = NDArray[np.float64]

WIDTHS = (0.5, 1.0, 2.0, 4.0, 8.0)
PENALTIES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
_DIGITS = 5
"""Of scaled facts, as they are kept."""


@dataclass(frozen=True)
class Kernel:
    """Of the 12 scaled targets."""

    points: tuple[tuple[float, ...], ...]
    """Scaled facts of the training rows."""
    widths: tuple[float, ...]
    means: tuple[float, ...]
    weights: tuple[tuple[float, ...] | None, ...]
    """[12][rows], or None for a target that is not predicted."""

    def __post_init__(self) -> None:
        if {len(self.widths), len(self.means), len(self.weights)} != {len(COLUMNS)}:
            raise BadInput(f"kernel: expected {len(COLUMNS)} targets")
        if any(weights is not None and len(weights) != len(self.points) for weights in self.weights):
            raise BadInput(f"kernel: expected a weight for each of {len(self.points)} rows")
        if len({len(point) for point in self.points}) > 1:
            raise BadInput("kernel: rows of different lengths")

    def predict(self, seen: FloatArray) -> FloatArray:
        """[n, 12] from scaled facts [n, D]; 0 for a target that is not predicted."""
        found = np.zeros((len(seen), len(COLUMNS)))
        squares = _squares(np.round(seen, _DIGITS), np.asarray(self.points))
        for place, weights in enumerate(self.weights):
            if weights is not None:
                found[:, place] = self.means[place] + _alike(squares, self.widths[place]) @ np.asarray(weights)
        return found

    @classmethod
    def fit(cls, seen: FloatArray, wanted: FloatArray, folds: NDArray[np.int64]) -> tuple[Kernel, FloatArray]:
        """From training rows, and what is said of each without the row's fold.

        Args:
            seen: [n, D], scaled facts.
            wanted: [n, 12], scaled targets; NaN where null.
            folds: [n], which rows are held back together.
        """
        points = np.round(seen, _DIGITS)
        squares = _squares(points, points)
        held = np.zeros(wanted.shape)
        widths, means = np.ones(len(COLUMNS)), np.zeros(len(COLUMNS))
        weights: list[tuple[float, ...] | None] = [None] * len(COLUMNS)
        known = ~np.isnan(wanted)
        for mask in np.unique(known.T[known.any(axis=0)], axis=0):  # targets that are null in the same rows, together
            places = np.flatnonzero((known == mask[:, None]).all(axis=0))
            tried = {width: _held_back(_alike(squares, width), wanted[:, places], mask, folds) for width in WIDTHS}
            for number, place in enumerate(places):
                errors = {
                    (width, penalty): float(((each[number] - wanted[:, place])[mask] ** 2).mean())
                    for width, by_penalty in tried.items()
                    for penalty, each in zip(PENALTIES, by_penalty, strict=True)
                }
                width, penalty = min(errors, key=errors.__getitem__)
                held[:, place] = tried[width][PENALTIES.index(penalty)][number]
                widths[place], means[place] = width, wanted[mask, place].mean()
                alike = _alike(squares, width)[np.ix_(mask, mask)]
                solved = np.zeros(len(points))
                solved[mask] = np.linalg.solve(alike + penalty * np.eye(len(alike)), wanted[mask, place] - means[place])
                weights[place] = tuple(map(float, solved))
        rows = tuple(tuple(map(float, point)) for point in points)
        return cls(rows, tuple(map(float, widths)), tuple(map(float, means)), tuple(weights)), held


def _held_back(alike: FloatArray, wanted: FloatArray, mask: NDArray[np.bool_], folds: NDArray[np.int64]) -> FloatArray:
    """[penalties, targets, n]: what is said of each row without its fold."""
    held = np.zeros((len(PENALTIES), wanted.shape[1], len(wanted)))
    for fold in np.unique(folds):
        out, rest = folds == fold, mask & (folds != fold)
        if not rest.any():
            continue
        sizes, turns = np.linalg.eigh(alike[np.ix_(rest, rest)])
        means = wanted[rest].mean(axis=0)
        turned = turns.T @ (wanted[rest] - means)
        seen = alike[np.ix_(out, rest)] @ turns
        for number, penalty in enumerate(PENALTIES):
            held[number][:, out] = (means + seen @ (turned / (sizes + penalty)[:, None])).T
    return held


def _squares(first: FloatArray, second: FloatArray) -> FloatArray:
    """[n, m]: mean square distance."""
    return np.asarray(((first[:, None, :] - second[None, :, :]) ** 2).mean(axis=2), dtype=np.float64)


def _alike(squares: FloatArray, width: float) -> FloatArray:
    return np.asarray(np.exp(-squares / (2 * width**2)), dtype=np.float64)
