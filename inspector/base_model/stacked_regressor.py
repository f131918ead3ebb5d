"""The base model that a network corrects: a weighted sum of regressors for each target.

    law      cost model (cost_model.py)
    ridge    ridge regression on the workload features (ridge.py)
    kernel   kernel ridge regression on the same features (kernel_ridge.py)
    moved    a + b * base prediction of another setting, in a transfer

    y = mean + sum over regressors k of share_k * (y_k - mean)        share_k >= 0, together at most 1

The cost model extrapolates to larger graphs; ridge and kernel do not, so they stay near the training range. Where the
cost model leaves that range, they follow it by the slope that fitted out-of-fold training rows (`reach`). Levels of a
burst are bounded by the link or the processor and always stay in the range. Shares minimise the mean absolute error on
out-of-fold rows; folds are whole model families where these are known, because predictions are for new families.

The network receives out-of-fold base predictions and learns the residual. In a transfer, `moved` likewise uses the
source's out-of-fold prediction for a job that the source was trained on (`apart`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.metrics import LEVEL, TARGET_OF_COLUMN
from driple.inspector.base_model.cost_model import CostModel
from driple.inspector.base_model.kernel_ridge import KernelRidge
from driple.inspector.base_model.ridge import LinearModel, ridges, straight
from driple.inspector.data.array_types import BoolArray, FloatArray, IntArray
from driple.inspector.data.scaling import TargetScaler, WorkloadScaler

Lines = tuple[LinearModel | None, ...]
Jobs: TypeAlias = Sequence[str | None]

LAW, RIDGE, KERNEL, MOVED = KINDS = ("law", "ridge", "kernel", "moved")
FOLDS = 10
OUTLYING = 3.0
"""Deviations: ridge and kernel clip features here, so that a single outlier does not decide a prediction."""
MARGIN = 0.1
"""Share of the training range by which ridge and kernel may leave it without the cost model."""
TURNS = 6
"""Iterations of the reweighted least squares."""
_ROUNDING = 1e-9
_EXACT = 0.03
"""Deviations: a row with a smaller error weighs no more than with it."""


@dataclass(frozen=True)
class BaseModel:
    """A weighted sum of regressors for each scaled target."""

    shares: tuple[tuple[float, ...] | None, ...]
    """[T][KINDS]; None for a target that is not predicted."""
    law: CostModel
    ridges: Lines
    kernel: KernelRidge
    moved: Lines
    means: tuple[float, ...]
    """Scaled means of the training rows; likewise their least and greatest values."""
    lowest: tuple[float, ...]
    highest: tuple[float, ...]
    reach: tuple[float, ...]
    """Slope of the out-of-fold rows against the cost model, 0 to 1: how far to follow it out of the range."""
    elsewhere: SourceModel | None = None
    """The source model of a transfer, used by `moved`."""
    apart: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Out-of-fold predictions by training job (examples.job_of)."""

    def __post_init__(self) -> None:
        parts = [getattr(self, name) for name in ("shares", "ridges", "moved", "means", "lowest", "highest", "reach")]
        if len({len(part) for part in (*parts, self.law.rates, self.kernel.means, *self.apart.values())}) != 1:
            raise BadInput("base model: its parts have different numbers of targets")
        if any(low > high for low, high in zip(self.lowest, self.highest, strict=True)):
            raise BadInput("base model: a lowest value above the highest")
        if min(self.reach) < 0 or max(self.reach) > 1:
            raise BadInput("base model: expected a reach from 0 to 1")
        for share, line, moved in zip(self.shares, self.ridges, self.moved, strict=True):
            if share is None:
                continue
            if len(share) != len(KINDS) or min(share) < 0 or sum(share) > 1 + _ROUNDING:
                raise BadInput(f"base model: expected {len(KINDS)} shares of 0 or more, together at most 1")
            if line is None:
                raise BadInput("base model: a target without a ridge")
            if share[KINDS.index(MOVED)] and (moved is None or self.elsewhere is None):
                raise BadInput("base model: a source weight is set but no source model is stored")

    def predict(self, facts: FloatArray, scale: WorkloadScaler, targets: TargetScaler, jobs: Jobs = ()) -> FloatArray:
        """[n, T], scaled; 0 for a target that is not predicted.

        `facts` are [n, len(WORKLOAD_FEATURES)], not scaled. `jobs` [n] are given in an evaluation: a source model then
        predicts them out of fold.
        """
        seen = _seen(facts, scale)
        there = None if self.elsewhere is None else self.elsewhere.predict(facts, jobs)
        by_law = targets.transform(self.law.estimate(facts, targets.columns))
        by_kernel = self.kernel.predict(seen)
        found = np.zeros((len(facts), len(self.means)))
        for place, (share, line, moved) in enumerate(zip(self.shares, self.ridges, self.moved, strict=True)):
            if share is None or line is None:
                continue
            said = {RIDGE: line.predict(seen), KERNEL: by_kernel[:, place]}
            if self.law.rates[place] is not None:
                said[LAW] = np.where(np.isnan(by_law[:, place]), self.means[place], by_law[:, place])
            if moved is not None and there is not None:
                said[MOVED] = moved.predict(there[:, [place]])
            said = _near(said, targets.columns[place], self.lowest[place], self.highest[place], self.reach[place])
            found[:, place] = _blend(said, self.means[place], share)
        return found

    @classmethod
    def fit(
        cls,
        facts: FloatArray,
        values: FloatArray,
        folds: IntArray,
        scale: WorkloadScaler,
        targets: TargetScaler,
        elsewhere: SourceModel | None = None,
        jobs: Jobs = (),
    ) -> tuple[BaseModel, FloatArray]:
        """Fits the model; also returns the out-of-fold prediction of each training row [n, T].

        Args:
            facts: [n, len(WORKLOAD_FEATURES)], not scaled.
            values: [n, T] in the targets' own units, NaN where null.
            folds: [n]: rows of a fold are left out together.
            scale, targets: scalers of facts and values.
            elsewhere: the base model of another setting.
            jobs: [n], by which the source model recognises its training rows.
        """
        seen, wanted = _seen(facts, scale), targets.transform(values)
        there = None if elsewhere is None else elsewhere.predict(facts, jobs)
        law, law_held = CostModel.fit(facts, np.where(targets.usable, values, np.nan), folds, targets.columns)
        law_held = targets.transform(law_held)
        kernel, kernel_held = KernelRidge.fit(seen, wanted, folds)
        lines, lines_held = ridges(seen, wanted, folds)
        shares: list[tuple[float, ...] | None] = [None] * values.shape[1]
        moved: list[LinearModel | None] = [None] * values.shape[1]
        held = np.zeros(values.shape)
        means, lowest, highest, reach = ([0.0] * values.shape[1] for _ in range(4))
        for place, used in enumerate(targets.usable):
            rows = ~np.isnan(wanted[:, place])
            if not used or not rows.any():
                continue
            known = wanted[rows, place]
            means[place], lowest[place], highest[place] = (float(f(known)) for f in (np.mean, np.min, np.max))
            said = {RIDGE: lines_held[:, place], KERNEL: kernel_held[:, place]}
            if law.rates[place] is not None:
                said[LAW] = np.where(np.isnan(law_held[:, place]), means[place], law_held[:, place])
                reach[place] = _slope(said[LAW][rows], known)
            if there is not None:
                moved[place], said[MOVED] = straight(there[:, place], wanted[:, place], rows, folds)
            said = _near(said, targets.columns[place], lowest[place], highest[place], reach[place])
            shares[place] = share = _shares(said, wanted[:, place], rows, means[place])
            held[:, place] = _blend(said, means[place], share)
        used_there = any(share is not None and share[KINDS.index(MOVED)] for share in shares)
        ranges = tuple(means), tuple(lowest), tuple(highest), tuple(reach)
        source = elsewhere if used_there else None
        return cls(tuple(shares), law, lines, kernel, tuple(moved), *ranges, elsewhere=source), held


@dataclass(frozen=True)
class SourceModel:
    """The base model of another setting, with its scalers."""

    plain: BaseModel
    facts: WorkloadScaler
    targets: TargetScaler

    def predict(self, facts: FloatArray, jobs: Jobs = ()) -> FloatArray:
        """[n, targets], scaled as there; a job that it was fitted on gets its out-of-fold prediction."""
        found = self.plain.predict(facts, self.facts, self.targets, jobs)
        for row, job in enumerate(jobs):
            if job in self.plain.apart:
                found[row] = self.plain.apart[job]
        return found


def _seen(facts: FloatArray, scale: WorkloadScaler) -> FloatArray:
    """Scaled and clipped features for ridge and kernel; the cost model takes amounts of work unscaled."""
    return np.clip(scale.transform(facts), -OUTLYING, OUTLYING)


def _slope(said: FloatArray, known: FloatArray) -> float:
    apart = said - said.mean()
    spread = float(apart @ apart)
    return float(np.clip(apart @ known / spread, 0.0, 1.0)) if spread > 0 else 0.0


def _near(
    said: Mapping[str, FloatArray], column: str, lowest: float, highest: float, reach: float
) -> dict[str, FloatArray]:
    """Predictions kept near the training range, or leaving it with the cost model."""
    is_level = TARGET_OF_COLUMN[column].kind == LEVEL
    margin = 0.0 if is_level else MARGIN * (highest - lowest)

    def near(each: FloatArray) -> FloatArray:
        return np.clip(each, lowest - margin, highest + margin)

    if is_level or LAW not in said:
        return {kind: near(each) for kind, each in said.items()}
    beyond = reach * (said[LAW] - near(said[LAW]))
    return {kind: each if kind in (LAW, MOVED) else near(each) + beyond for kind, each in said.items()}


def _shares(said: Mapping[str, FloatArray], wanted: FloatArray, rows: BoolArray, mean: float) -> tuple[float, ...]:
    from scipy.optimize import nnls

    columns = np.stack([each[rows] - mean for each in said.values()], axis=1)
    asked = wanted[rows] - mean
    roots = np.ones(len(asked))
    for _ in range(TURNS):
        solved, _ = nnls(columns * roots[:, None], asked * roots)
        solved /= max(1.0, solved.sum())
        roots = np.maximum(np.abs(columns @ solved - asked), _EXACT) ** -0.5
    found = dict(zip(said, solved, strict=True))
    return tuple(float(found.get(kind, 0.0)) for kind in KINDS)


def _blend(said: Mapping[str, FloatArray], mean: float, share: Sequence[float]) -> FloatArray:
    parts = (share[KINDS.index(kind)] * (each - mean) for kind, each in said.items())
    return np.asarray(mean + sum(parts), dtype=np.float64)


def folds_of(names: Sequence[object], rows: int) -> IntArray:
    """The fold of each row: rows of one name stay together; without two names, row by row in turn."""
    known = sorted({str(name) for name in names if name is not None})
    if len(known) < 2 or any(name is None for name in names):
        return np.arange(rows) % min(FOLDS, max(rows, 1))
    number = {name: place % FOLDS for place, name in enumerate(known)}
    return np.asarray([number[str(name)] for name in names], dtype=np.int64)
