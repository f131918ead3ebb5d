"""The kernel law: kernel ridge regression of the logarithm of the step time.

It sees the terms of the pooled law at the site, totals of the graph, the update mode and the numbers of tasks. So it
learns what the terms leave over, such as how well a link's time is hidden behind computing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driple.inspector.base_model.kernel_ridge import KernelRidge
from driple.inspector.data.array_types import FloatArray
from driple.inspector.time.pooled_law import Terms
from driple.inspector.time.time_table import TimeTable

MILLISECOND = 1e-3
FARTHEST = 3.0
"""Standard deviations from the training mean beyond which a feature counts as this."""


@dataclass(frozen=True)
class KernelLaw:
    """The regression, and the scales of its features and of its target."""

    means: tuple[float, ...]
    deviations: tuple[float, ...]
    mean: float
    deviation: float
    kernel: KernelRidge

    def predict(self, table: TimeTable, terms: Terms) -> FloatArray:
        """[n] seconds."""
        scaled = (_features(table, terms) - np.array(self.means)) / np.array(self.deviations)
        found = self.kernel.predict(np.clip(scaled, -FARTHEST, FARTHEST))[:, 0]
        return np.asarray(np.exp(found * self.deviation + self.mean), dtype=np.float64)

    @classmethod
    def fit(cls, table: TimeTable, terms: Terms, seconds: FloatArray, families: Sequence[str]) -> KernelLaw:
        """Fits to measured step times [n]; width and penalty minimise the error on families that are left out."""
        features = _features(table, terms)
        means, deviations = features.mean(axis=0), np.maximum(features.std(axis=0), 1e-9)
        wanted = np.log(seconds)
        mean, deviation = float(wanted.mean()), max(float(wanted.std()), 1e-9)
        folds = np.unique(list(families), return_inverse=True)[1]
        scaled = (features - means) / deviations
        kernel, _ = KernelRidge.fit(scaled, ((wanted - mean) / deviation)[:, None], folds)
        return cls(tuple(map(float, means)), tuple(map(float, deviations)), mean, deviation, kernel)


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
