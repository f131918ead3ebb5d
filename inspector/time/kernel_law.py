"""The kernel law: kernel ridge regression of the logarithm of the step time.

It sees the terms of the pooled law at the site, totals of the graph, the update mode and the numbers of tasks. So it
learns what the terms leave over, such as how well a link's time is hidden behind computing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driple.inspector.base_model.kernel_ridge import PENALTIES, WIDTHS, KernelRidge, kernel_of, mean_squares
from driple.inspector.data.array_types import FloatArray
from driple.inspector.time.pooled_law import Terms
from driple.inspector.time.time_table import TimeTable

MILLISECOND = 1e-3
DIGITS = 5
"""Decimal digits of stored points."""
FOLDS = 5
"""Groups of families."""
FARTHEST = 3.0
"""Standard deviations from the training mean beyond which a feature counts as this."""


@dataclass(frozen=True)
class KernelLaw:
    """The regression, and the scales of its features and of its target."""

    means: tuple[float, ...]
    deviations: tuple[float, ...]
    mean: float
    deviation: float
    penalty: float
    kernel: KernelRidge

    def predict(self, table: TimeTable, terms: Terms) -> FloatArray:
        """[n] seconds."""
        scaled = (_features(table, terms) - np.array(self.means)) / np.array(self.deviations)
        found = self.kernel.predict(np.clip(scaled, -FARTHEST, FARTHEST))[:, 0]
        return np.asarray(np.exp(found * self.deviation + self.mean), dtype=np.float64)

    @classmethod
    def fit(
        cls,
        table: TimeTable,
        terms: Terms,
        seconds: FloatArray,
        families: Sequence[str],
        like: KernelLaw | None = None,
    ) -> KernelLaw:
        """Fits to measured step times [n].

        Args:
            table: the rows.
            terms: their terms of the pooled law.
            seconds: [n].
            families: [n]: width and penalty minimise the error on families that are left out.
            like: a law whose width and penalty are taken instead, which is much faster.
        """
        features = _features(table, terms)
        means, deviations = features.mean(axis=0), np.maximum(features.std(axis=0), 1e-9)
        wanted = np.log(seconds)
        mean, deviation = float(wanted.mean()), max(float(wanted.std()), 1e-9)
        points, scaled = np.round((features - means) / deviations, DIGITS), (wanted - mean) / deviation
        width, penalty = _chosen(points, scaled, families) if like is None else (like.kernel.widths[0], like.penalty)
        matrix = kernel_of(mean_squares(points, points), width) + penalty * np.eye(len(points))
        weights = np.linalg.solve(matrix, scaled)
        rows = tuple(tuple(map(float, point)) for point in points)
        kernel = KernelRidge(rows, (width,), (0.0,), (tuple(map(float, weights)),))
        return cls(tuple(map(float, means)), tuple(map(float, deviations)), mean, deviation, penalty, kernel)


def _chosen(points: FloatArray, wanted: FloatArray, families: Sequence[str]) -> tuple[float, float]:
    """Width and penalty with the least square error on groups of families that are left out."""
    names = sorted(set(families))
    group = np.array([names.index(one) % FOLDS for one in families])
    squares = mean_squares(points, points)
    errors = np.zeros((len(WIDTHS), len(PENALTIES)))
    for place, width in enumerate(WIDTHS):
        alike = kernel_of(squares, width)
        for fold in np.unique(group) if len(names) > 1 else ():
            out = group == fold
            sizes, turns = np.linalg.eigh(alike[np.ix_(~out, ~out)])
            turned = turns.T @ wanted[~out]
            weights = turns @ (turned[:, None] / (sizes[:, None] + np.array(PENALTIES)))
            errors[place] += ((alike[np.ix_(out, ~out)] @ weights - wanted[out, None]) ** 2).sum(axis=0)
    best = int(errors.argmin())
    return WIDTHS[best // len(PENALTIES)], PENALTIES[best % len(PENALTIES)]


def _features(table: TimeTable, terms: Terms) -> FloatArray:
    columns = [
        np.log(terms.computing + MILLISECOND),
        np.log(terms.link + MILLISECOND),
        np.log1p(table.amount("ops")),
        np.log(table.batch),
        table.is_async.astype(np.float64),
        np.log(table.workers),
        np.log1p(table.servers),
        np.log(table.amount("flops") + 1e6),
        np.log(table.amount("bytes") + 1e3),
        np.log(table.moved + 1e3),
    ]
    return np.stack(columns, axis=1)
