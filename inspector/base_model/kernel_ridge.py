"""Kernel ridge regression on the workload features.

    y(x) = mean + sum over training rows i of w_i * exp(-d(x, x_i)^2 / (2 width^2))

d is the root mean square distance of the scaled features. Width and penalty minimise the out-of-fold error.
Far from all training rows the prediction is their mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from driple.contracts.errors import BadInput
from driple.inspector.data.array_types import BoolArray, FloatArray, IntArray

WIDTHS = (0.5, 1.0, 2.0, 4.0, 8.0)
PENALTIES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
_WIDEST = 1e6
_DIGITS = 5
"""Decimal digits of the stored points."""


@dataclass(frozen=True)
class KernelRidge:
    """One model per scaled target."""

    points: tuple[tuple[float, ...], ...]
    """Scaled features of the training rows."""
    widths: tuple[float, ...]
    means: tuple[float, ...]
    weights: tuple[tuple[float, ...] | None, ...]
    """[T][rows], or None for a target that is not predicted."""

    def __post_init__(self) -> None:
        if len({len(self.widths), len(self.means), len(self.weights)}) != 1:
            raise BadInput("kernel: widths, means and weights of different numbers of targets")
        if any(weights is not None and len(weights) != len(self.points) for weights in self.weights):
            raise BadInput(f"kernel: expected a weight for each of {len(self.points)} rows")
        if len({len(point) for point in self.points}) != 1:
            raise BadInput("kernel: no rows, or rows of different lengths")
        if not 0 < min(self.widths) <= max(self.widths) <= _WIDEST:
            raise BadInput(f"kernel: expected widths of more than 0 and at most {_WIDEST:g}")

    def predict(self, seen: FloatArray) -> FloatArray:
        """[n, T] from scaled features [n, D]; 0 for a target that is not predicted."""
        found = np.zeros((len(seen), len(self.means)))
        points, weights = self._arrays
        squares = mean_squares(np.round(seen, _DIGITS), points)
        for width in set(self.widths):
            own = [place for place, each in enumerate(self.widths) if each == width]
            found[:, own] = np.asarray(self.means)[own] + kernel_of(squares, width) @ weights[:, own]
        return found

    @cached_property
    def _arrays(self) -> tuple[FloatArray, FloatArray]:
        """Points [rows, D], and weights [rows, T], 0 for a target that is not predicted."""
        weights = [(0.0,) * len(self.points) if each is None else each for each in self.weights]
        return np.asarray(self.points), np.asarray(weights).T

    @classmethod
    def fit(cls, seen: FloatArray, wanted: FloatArray, folds: IntArray) -> tuple[KernelRidge, FloatArray]:
        """Fits the models; also returns the out-of-fold predictions of the training rows.

        Args:
            seen: [n, D], scaled features.
            wanted: [n, T], scaled targets; NaN where null.
            folds: [n]: rows of a fold are held out together.
        """
        points = np.round(seen, _DIGITS)
        squares = mean_squares(points, points)
        held = np.zeros(wanted.shape)
        targets = wanted.shape[1]
        widths, means = np.ones(targets), np.zeros(targets)
        weights: list[tuple[float, ...] | None] = [None] * targets
        known = ~np.isnan(wanted)
        for mask in np.unique(known.T[known.any(axis=0)], axis=0):  # targets with nulls in the same rows together
            places = np.flatnonzero((known == mask[:, None]).all(axis=0))
            fits = [_Fits(kernel_of(squares, width), wanted[:, places], mask) for width in WIDTHS]
            tried = np.stack([each.without_folds(folds) for each in fits])  # [widths, penalties, n, targets]
            errors = ((tried - wanted[:, places])[:, :, mask] ** 2).mean(axis=2)
            for number, place in enumerate(places):
                width, penalty = np.unravel_index(errors[..., number].argmin(), errors.shape[:2])
                held[:, place] = tried[width, penalty, :, number]
                widths[place], means[place] = WIDTHS[width], fits[width].means[number]
                solved = np.zeros(len(points))
                solved[mask] = fits[width].weights[penalty, :, number]
                weights[place] = tuple(map(float, solved))
        rows = tuple(tuple(map(float, point)) for point in points)
        return cls(rows, tuple(map(float, widths)), tuple(map(float, means)), tuple(weights)), held


class _Fits:
    """Fits of one width and all penalties, for targets that are known in the same rows.

    Weights are B (y - mean), with B the inverse of (kernel + penalty) over the known rows.
    """

    def __init__(self, alike: FloatArray, wanted: FloatArray, mask: BoolArray) -> None:
        self._alike, self._mask, self._known = alike[:, mask], mask, wanted[mask]
        sizes, turns = np.linalg.eigh(alike[np.ix_(mask, mask)])
        self._inverses = (turns / (sizes + np.array(PENALTIES)[:, None])[:, None, :]) @ turns.T
        self.means = self._known.mean(axis=0)
        self._of_values, self._of_ones = self._inverses @ self._known, self._inverses.sum(axis=2)[..., None]
        self.weights = self._of_values - self._of_ones * self.means

    def without_folds(self, folds: IntArray) -> FloatArray:
        """[penalties, n, targets]: out-of-fold predictions, also of rows without a known value.

        Nothing is decomposed again: changing y in a fold f by -(B_ff)^-1 times its weights makes these weights 0, which
        is the fit without f. The mean is that of the other rows.
        """
        held = np.zeros((len(PENALTIES), len(folds), self._known.shape[1]))
        for fold in np.unique(folds):
            out = folds == fold
            own = out[self._mask]
            if own.all():
                continue
            means = self._known[~own].mean(axis=0)
            weights = self._of_values - self._of_ones * means
            changed = np.linalg.solve(self._inverses[:, own][:, :, own], weights[:, own])
            held[:, out] = means + self._alike[out] @ (weights - self._inverses[:, :, own] @ changed)
        return held


def mean_squares(first: FloatArray, second: FloatArray) -> FloatArray:
    """[n, m]: mean square distance."""
    lengths = (first**2).sum(axis=1)[:, None] + (second**2).sum(axis=1)
    return np.maximum(lengths - 2 * first @ second.T, 0.0) / first.shape[1]


def kernel_of(squares: FloatArray, width: float) -> FloatArray:
    """[n, m]: the kernel, from mean square distances."""
    return np.asarray(np.exp(-squares / (2 * width**2)), dtype=np.float64)
