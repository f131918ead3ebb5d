"""The plain model that a network begins with: for each target the best of three that need no training.

    mean     the mean of the training rows
    ridge    ridge regression from the facts
    law      the law of costs (costlaw.py)

The law says how much longer more work takes, however much more. Ridges go astray beyond what they have seen, and the
height of a burst has its limits, so both stay near the range of the training rows.

Best is what errs least on training rows held back, whole families at a time where families are known, because an
inspector is asked about families that it has not seen. The network then learns what the plain model leaves over. It is
shown, of each training row, what the plain model says without that row's fold: what it said with it would be too good.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from driple.contracts.errors import BadInput, UnknownName
from driple.contracts.metrics import AMOUNT, COLUMNS, TARGETS
from driple.inspector.costlaw import CostLaw
from driple.inspector.scaling import FactScaler, TargetScaler

FloatArray: TypeAlias = NDArray[np.float64]

MEAN, RIDGE, LAW = KINDS = ("mean", "ridge", "law")
STRENGTHS: tuple[float, ...] = tuple(10.0 ** (power / 2) for power in range(-2, 9))
"""From little to one that leaves hardly more than the mean, for standardised facts."""
FOLDS = 10
MARGIN = 0.1
"""Share of the training range that a bounded prediction may lie outside of it."""


@dataclass(frozen=True)
class Line:
    """A linear model of one scaled target."""

    weights: tuple[float, ...]
    bias: float


@dataclass(frozen=True)
class Plain:
    """A plain model of each of the 12 targets, in the scaled space of targets."""

    kinds: tuple[str | None, ...]
    """None for a target that is not predicted."""
    lines: tuple[Line | None, ...]
    """Where the kind is `ridge`, or `mean`: that one without weights."""
    law: CostLaw
    lowest: tuple[float, ...]
    """Of the training rows, scaled."""
    highest: tuple[float, ...]

    def __post_init__(self) -> None:
        sizes = {len(part) for part in (self.kinds, self.lines, self.lowest, self.highest)}
        if sizes != {len(COLUMNS)}:
            raise BadInput(f"plain model: expected {len(COLUMNS)} targets")
        for kind, line in zip(self.kinds, self.lines, strict=True):
            if kind is not None and kind not in KINDS:
                raise UnknownName("plain model", kind, KINDS)
            if (kind in (MEAN, RIDGE)) != (line is not None):
                raise BadInput("plain model: a ridge without its weights, or weights without a ridge")

    def predict(self, facts: FloatArray, scale: FactScaler, targets: TargetScaler) -> FloatArray:
        """[n, 12], scaled, from facts [n, len(FACTS)]; 0 for a target that is not predicted."""
        seen = scale.transform(facts)
        by_law = np.nan_to_num(targets.transform(self.law.estimate(facts)), nan=0.0)
        found = np.zeros((len(facts), len(COLUMNS)))
        for place, (kind, line) in enumerate(zip(self.kinds, self.lines, strict=True)):
            if kind is None:
                continue
            if line is None:
                said = by_law[:, place]
            else:
                said = line.bias + (seen @ np.asarray(line.weights) if line.weights else np.zeros(len(facts)))
            found[:, place] = _near(said, kind, place, self.lowest[place], self.highest[place])
        return found

    @classmethod
    def fit(
        cls, facts: FloatArray, values: FloatArray, folds: NDArray[np.int64], scale: FactScaler, targets: TargetScaler
    ) -> tuple[Plain, FloatArray]:
        """The best model of each target, and what it says of each training row without the row's fold [n, 12].

        Args:
            facts: [n, len(FACTS)], not scaled.
            values: [n, 12] in the targets' own units, NaN where null.
            folds: [n], which rows are held back together.
            scale: of the facts.
            targets: of the targets.
        """
        law, law_held = CostLaw.fit(facts, np.where(targets.usable, values, np.nan), folds)
        wanted, law_said, seen = targets.transform(values), targets.transform(law_held), scale.transform(facts)
        kinds: list[str | None] = []
        lines: list[Line | None] = []
        held = np.zeros(values.shape)
        lowest, highest = np.zeros(len(COLUMNS)), np.zeros(len(COLUMNS))
        for place, used in enumerate(targets.usable):
            rows = ~np.isnan(wanted[:, place])
            if not used or not rows.any():
                kinds.append(None)
                lines.append(None)
                continue
            low, high = float(wanted[rows, place].min()), float(wanted[rows, place].max())
            lowest[place], highest[place] = low, high
            line, ridge_held = _ridge(seen, wanted[:, place], rows, folds)
            mean = float(wanted[rows, place].mean())
            said = {MEAN: np.full(len(rows), mean), RIDGE: ridge_held, LAW: np.nan_to_num(law_said[:, place], nan=0.0)}
            said = {kind: _near(each, kind, place, low, high) for kind, each in said.items()}
            errors = {kind: float(((said[kind] - wanted[:, place])[rows] ** 2).mean()) for kind in KINDS}
            best = min(KINDS, key=errors.__getitem__)
            kinds.append(best)
            lines.append({MEAN: Line((), mean), RIDGE: line, LAW: None}[best])
            held[:, place] = said[best]
        return cls(tuple(kinds), tuple(lines), law, tuple(map(float, lowest)), tuple(map(float, highest))), held


def _near(said: FloatArray, kind: str, place: int, lowest: float, highest: float) -> FloatArray:
    """What was said, kept near the range of the training rows where nothing vouches for more."""
    if kind == LAW and TARGETS[place].metric is not AMOUNT:
        return said
    margin = MARGIN * (highest - lowest)
    return np.clip(said, lowest - margin, highest + margin)


def folds_of(names: Sequence[object], rows: int) -> NDArray[np.int64]:
    """The fold of each row: rows of one name stay together; without two names, row by row in turn."""
    known = sorted({str(name) for name in names if name is not None})
    if len(known) < 2 or any(name is None for name in names):
        return np.arange(rows) % min(FOLDS, max(rows, 1))
    number = {name: place % FOLDS for place, name in enumerate(known)}
    return np.asarray([number[str(name)] for name in names], dtype=np.int64)


def _ridge(
    seen: FloatArray, wanted: FloatArray, rows: NDArray[np.bool_], folds: NDArray[np.int64]
) -> tuple[Line, FloatArray]:
    """The ridge of the strength that errs least on folds held back, and what was said of those."""
    held = np.zeros((len(STRENGTHS), len(wanted)))
    for fold in np.unique(folds):
        out = folds == fold
        rest = rows & ~out
        if rest.any():
            weights, biases = _solve(seen[rest], wanted[rest], STRENGTHS)
            held[:, out] = weights @ seen[out].T + biases[:, None]
    best = int(((held - wanted)[:, rows] ** 2).sum(axis=1).argmin())
    weights, biases = _solve(seen[rows], wanted[rows], STRENGTHS[best : best + 1])
    return Line(tuple(float(weight) for weight in weights[0]), float(biases[0])), held[best]


def _solve(x: FloatArray, y: FloatArray, strengths: Sequence[float]) -> tuple[FloatArray, FloatArray]:
    """Weights [S, D] and biases [S] of ridges of each strength, from one decomposition."""
    x_mean, y_mean = x.mean(axis=0), y.mean()
    left, sizes, right = np.linalg.svd(x - x_mean, full_matrices=False)
    turned = left.T @ (y - y_mean)
    weights = np.stack([right.T @ (sizes / (sizes**2 + strength) * turned) for strength in strengths])
    return weights, y_mean - weights @ x_mean
