"""Baselines that fit each target alone, on scaled workload features and log-scaled targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driple.inspector.data.array_types import FloatArray
from driple.inspector.data.examples import Examples, usable
from driple.inspector.data.scaling import TargetScaler, WorkloadScaler
from driple.inspector.data.workload_features import workload_feature_table
from driple.inspector.training.threads import solver_threads

Predict = Callable[[Examples], FloatArray]
"""Examples to [n, columns], in the targets' own units; NaN where a target could not be learned."""
TargetModel = Callable[[FloatArray], FloatArray]
"""Scaled features [n, D] to one scaled target [n]."""


@dataclass(frozen=True)
class Known:
    """The rows of one target that have a value."""

    facts: FloatArray
    values: FloatArray
    families: NDArray[np.object_]

    def __add__(self, other: Known) -> Known:
        pairs = ((getattr(self, name), getattr(other, name)) for name in ("facts", "values", "families"))
        return Known(*(np.concatenate(pair) for pair in pairs))


Learn = Callable[[Known, "Known | None", int], TargetModel]
"""Training rows, validation rows and seed to the model of one target."""


def fit_targets(learn: Learn, train: Examples, val: Examples | None, seed: int) -> Predict:
    """A model of each target with enough training values."""
    wanted = usable(train)
    facts = WorkloadScaler.fit(workload_feature_table(train.items))
    scale = TargetScaler.fit("log", train.targets(), wanted, train.columns)
    models: dict[int, TargetModel] = {}
    sides = [_scaled(side, facts, scale) for side in (train, val) if side is not None and len(side)]
    for column in np.flatnonzero(wanted):
        rows, *chosen_by = (_known(seen, values[:, column], families) for seen, values, families in sides)
        with solver_threads(len(rows.values)):
            models[int(column)] = learn(rows, chosen_by[0] if chosen_by and len(chosen_by[0].values) else None, seed)

    def predict(examples: Examples) -> FloatArray:
        seen = facts.transform(workload_feature_table(examples.items))
        scaled = np.full((len(examples), len(wanted)), np.nan)
        if len(examples):
            for column, model in models.items():
                scaled[:, column] = model(seen)
        return scale.inverse(scaled)

    return predict


def _scaled(examples: Examples, facts: WorkloadScaler, scale: TargetScaler) -> tuple[NDArray[Any], ...]:
    families = np.array([str(item.workload.get("family")) for item in examples.items], dtype=object)
    return facts.transform(workload_feature_table(examples.items)), scale.transform(examples.targets()), families


def _known(facts: FloatArray, values: FloatArray, families: NDArray[np.object_]) -> Known:
    there = ~np.isnan(values)
    return Known(facts[there], values[there], families[there])
