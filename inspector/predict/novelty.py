"""Novelty: the distance of a workload from the training workloads of an inspector.

A workload is a point whose coordinates are its features in standard deviations of the training rows. The distance of
two is the root mean square difference over the features that both have. Limits come from the training rows: how far
each lies from the nearest row of another model family, because predictions are asked for new families.

A graph of a framework that no training row has is far outside, whatever its distance: features tell the work, and
another framework has other kernels and another runtime.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driple.contracts.graph_makers import TENSORFLOW, title_of
from driple.inspector.data.array_types import FloatArray
from driple.inspector.data.examples import Example
from driple.inspector.data.scaling import WorkloadScaler
from driple.inspector.data.workload_features import DECLARED_FEATURES, SIZES, WORKLOAD_FEATURES, workload_features
from driple.inspector.model.model_config import EVERY
from driple.inspector.model.training_rows import TrainingRows

LIKE, EDGE, FAR = VERDICTS = ("like", "edge", "far")
# Quantiles of the distances of training rows to the nearest row of another family.
FAMILY_SHARES = (0.25, 0.9)
# Where families are unknown: to the nearest other row, which is nearer.
ROW_SHARES = (0.75, 0.95)
BEYOND = (1.0, 3.0)
"""Deviations by which one feature of ALONE outside the training range makes a workload at least `edge`, or `far`."""
ALONE = frozenset({*DECLARED_FEATURES, "log_ops", "log_edges", "log_levels", "log_kilobytes", "log_megaflops"})
"""Without features of one class of ops: where a class is rare, a second op of it is many deviations."""
NEAREST = 3
"""Training models in a report."""
_ROUNDING = 1e-4
"""Features are stored with six figures."""


@dataclass(frozen=True)
class OutOfRange:
    """A feature outside its training range."""

    fact: str
    value: float
    least: float
    greatest: float
    deviations: float | None
    """Beyond the nearer end; None for a feature that is constant in training, and so not used by the inspector."""

    def __str__(self) -> str:
        """`batch size 512 (training: 4 to 64)`."""
        value, least, greatest = (_shown(self.fact, one) for one in (self.value, self.least, self.greatest))
        name = self.fact.removeprefix("log_").removeprefix("is_").replace("_", " ")
        return f"{name} {value} (training: {least if least == greatest else f'{least} to {greatest}'})"


@dataclass(frozen=True)
class Novelty:
    """The position of a workload relative to the training workloads."""

    verdict: str
    """`like` the training data, at its `edge`, or `far` outside."""
    distance: float
    """To the nearest training row."""
    like_below: float
    edge_below: float
    nearest: tuple[tuple[str, float], ...]
    """Labels of the nearest training rows, one of each model, with their distances."""
    outside: tuple[OutOfRange, ...]
    """Farthest first."""
    framework: str = TENSORFLOW
    """What the graph was built with, in contracts/graph_makers.py."""
    training_frameworks: tuple[str, ...] = (TENSORFLOW,)

    @property
    def framework_seen(self) -> bool:
        """Whether a training row has a graph of the same framework."""
        return self.framework in self.training_frameworks

    @property
    def framework_line(self) -> str | None:
        """What to think of a framework that no training row has; None if one has it."""
        if self.framework_seen:
            return None
        titles = " and ".join(map(title_of, self.training_frameworks))
        return (
            f"its graph is of {title_of(self.framework)}, and no training graph is (all are of {titles}): the distance"
            " does not cover other kernels and another runtime"
        )


class TrainingRegion:
    """Training rows as points, scaled as the inspector scales features."""

    def __init__(self, rows: TrainingRows, scale: WorkloadScaler, loops: str = EVERY) -> None:
        self.rows = rows.rows
        self.loops = loops
        self.frameworks = rows.frameworks
        self._columns = [WORKLOAD_FEATURES.index(name) for name in scale.names]
        self._mean, self._deviation = np.asarray(scale.mean), np.asarray(scale.deviation)
        self._table = rows.table()
        self._points = self._scaled(self._table)
        self.like_below, self.edge_below = self._limits()

    def __len__(self) -> int:
        return len(self.rows)

    def novelty_of(self, example: Example, framework: str = TENSORFLOW) -> Novelty:
        """The novelty of a workload, whose graph was built with this framework."""
        facts = workload_features(example, self.loops)
        distances = _distances(self._scaled(facts[None]), self._points)[0]
        nearest: dict[str, tuple[str, float]] = {}
        for place in np.argsort(distances, kind="stable"):
            label = self.rows[place].label
            nearest.setdefault(label.partition(" ")[0], (label, float(distances[place])))
        outside = self._outside(facts)
        distance = float(distances.min())
        unseen = 0 if framework in self.frameworks else VERDICTS.index(FAR)
        return Novelty(
            verdict=VERDICTS[max(self._level(distance), *map(_level_of_fact, outside), unseen)],
            distance=distance,
            like_below=self.like_below,
            edge_below=self.edge_below,
            nearest=tuple(nearest.values())[:NEAREST],
            outside=outside,
            framework=framework,
            training_frameworks=self.frameworks,
        )

    def _level(self, distance: float) -> int:
        return int(distance > self.like_below + _ROUNDING) + int(distance > self.edge_below + _ROUNDING)

    def _scaled(self, facts: FloatArray) -> FloatArray:
        return (facts[:, self._columns] - self._mean) / self._deviation

    def _limits(self) -> tuple[float, float]:
        families = [row.family for row in self.rows]
        known = None not in families and len(set(families)) > 1
        names: Sequence[object] = families if known else range(len(families))
        other = np.array([[one != another for another in names] for one in names])
        apart = np.where(other, _distances(self._points, self._points), np.inf).min(axis=1)
        apart = apart[np.isfinite(apart)]
        if not len(apart):  # a single row
            return 0.0, 0.0
        like, edge = np.quantile(apart, FAMILY_SHARES if known else ROW_SHARES)
        return float(like), float(edge)

    def _outside(self, facts: FloatArray) -> tuple[OutOfRange, ...]:
        found = []
        deviations = dict(zip(self._columns, self._deviation.tolist(), strict=True))
        for column, name in enumerate(WORKLOAD_FEATURES):
            known = self._table[:, column][~np.isnan(self._table[:, column])]
            value = float(facts[column])
            if not known.size or math.isnan(value):
                continue
            least, greatest = float(known.min()), float(known.max())
            beyond = max(least - value, value - greatest)
            if beyond > _ROUNDING * max(1.0, abs(value)):
                far = beyond / deviations[column] if column in deviations else None
                found.append(OutOfRange(name, value, least, greatest, far))
        return tuple(sorted(found, key=lambda one: -math.inf if one.deviations is None else -one.deviations))


def _level_of_fact(one: OutOfRange) -> int:
    if one.deviations is None:
        return 1
    if one.fact not in ALONE:
        return 0
    return int(one.deviations > BEYOND[0]) + int(one.deviations > BEYOND[1])


def _distances(some: FloatArray, others: FloatArray) -> FloatArray:
    """[n, m]: root mean square over the features that both have; infinite where they share none."""
    apart = some[:, None] - others[None]
    known = ~np.isnan(apart)
    count = known.sum(axis=2)
    squares = np.square(np.where(known, apart, 0.0)).sum(axis=2)
    return np.where(count > 0, np.sqrt(squares / np.maximum(count, 1)), np.inf)


def _shown(fact: str, value: float) -> str:
    """The value of a feature before its logarithm."""
    if fact.startswith(("is_", "has_")):
        return "yes" if value else "no"
    if fact.startswith("log_"):
        value = math.exp(value) if fact.removeprefix("log_") in SIZES else math.expm1(value)
    whole = abs(value) >= 100 or abs(value - round(value)) < 0.01
    return f"{round(value):d}" if whole else f"{value:.3g}"
