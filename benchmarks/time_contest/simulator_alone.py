"""The simulator of this project alone: what it says without any correction by features (docs/concepts/simulator.md).

As shipped
    step = f * simulated step, where f is the median of measured / simulated over training rows of the place. The
    shipped parameters were fitted to the training and validation families of cpu-p1w2-1g, so left-out families were
    seen by them. A workload without a stored training step has no prediction.
Refitted
    Steps that benchmarks/simulator_cpu.py predicted with parameters that were fitted anew without the families of the
    fold (benchmarks/data/simulator-cpu.json). They exist for the first three settings only, and hold where the training
    rows include the row's setting, to which the parameters were fitted.
"""

from __future__ import annotations

import json
from dataclasses import fields
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from time_contest.contestant import Learn, Predict, Rows
from time_contest.places import Place, by_place, place_of

from driple.contracts.errors import BadInput
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.inspector.data.array_types import FloatArray
from driple.inspector.time.time_rows import TimeRow, step_times
from driple.pipeline.graph.public import TrainingStep, stored_step
from driple.simulator.fit.replay import FIT_STEPS
from driple.simulator.fit.step_file import STEPS, Key, key_of, read_steps
from driple.simulator.simulation import simulate_workload

REFITTED = Path(__file__).parents[1] / "data" / "simulator-cpu.json"
LEAST_OF_PLACE = 40
"""Training rows of a place, below which it counts as left out: more than any number of anchors."""
_WHOLE = ("batch_size", "image_size", "sequence_length")


def learner(datasets: Path) -> Learn:
    """As shipped, with the training steps in a folder of datasets."""
    return partial(learn_shipped, datasets=datasets)


def learn_shipped(train: Rows, seed: int, datasets: Path) -> Predict:
    """One factor for each place."""

    def fit(rows: Rows) -> Predict:
        shares = step_times(rows) / simulated_steps(rows, datasets)
        known = shares[~np.isnan(shares)]
        factor = float(np.median(known)) if len(known) else 1.0
        return lambda asked: factor * simulated_steps(asked, datasets)

    return by_place(fit, train)


def learn_refitted(train: Rows, seed: int) -> Predict:
    """Looks predictions up: nothing of the training rows is used, beside which places they have."""
    count: dict[Place, int] = {}
    for row in train:
        count[place_of(row)] = count.get(place_of(row), 0) + 1
    known = _refitted_steps()

    def one(row: TimeRow) -> float:
        if count.get(place_of(row), 0) < LEAST_OF_PLACE:
            return np.nan
        measured, simulated = known.get((str(row.setting), workload_of(row).label), (np.nan, np.nan))
        # Another measurement of the row, on another machine or with more repetitions, has other parameters.
        return simulated if abs(measured / row.step_s - 1) < 1e-3 else np.nan

    return lambda rows: np.array([one(row) for row in rows], dtype=np.float64)


def simulated_steps(rows: Rows, datasets: Path) -> FloatArray:
    """[n] seconds by the shipped parameters; NaN where there is no training step or no simulation."""
    return np.array([_simulated(workload_of(row), row.setting, datasets) for row in rows], dtype=np.float64)


@lru_cache(maxsize=8192)
def _simulated(workload: Workload, setting: Setting, datasets: Path) -> float:
    step = _step(workload, setting, datasets)
    if step is None:
        return np.nan
    try:
        found = simulate_workload(workload, setting, step=step, steps=FIT_STEPS)
    except BadInput:
        return np.nan
    return float(found.job.step_s)


def forget() -> None:
    """Simulates again what was simulated."""
    _simulated.cache_clear()


def _step(workload: Workload, setting: Setting, datasets: Path) -> TrainingStep | None:
    found = stored_step(workload, setting)
    if found is None and workload.framework == Workload.framework:
        found = _kept_steps(datasets / STEPS).get(key_of(workload, setting.servers))
    return found


@lru_cache(maxsize=1)
def _kept_steps(path: Path) -> dict[Key, TrainingStep]:
    return dict(read_steps(path)) if path.is_file() else {}


@lru_cache(maxsize=1)
def _refitted_steps() -> dict[tuple[str, str], tuple[float, float]]:
    """Measured and simulated step by setting and label."""
    found = {}
    for setting, parts in json.loads(REFITTED.read_text()).items():
        for name, part in parts.items():
            if name.partition(" ")[0] in ("families", "architecture"):
                steps = zip(part["measured_step_s"], part["simulated_step_s"], strict=True)
                found |= {(setting, label): own for label, own in zip(part["workloads"], steps, strict=True)}
    return found


def workload_of(row: TimeRow) -> Workload:
    """The workload of a row."""
    values: dict[str, Any] = {
        field.name: row.example.workload[field.name]
        for field in fields(Workload)
        if row.example.workload.get(field.name) is not None
    }
    return Workload(**{name: int(value) if name in _WHOLE else value for name, value in values.items()})
