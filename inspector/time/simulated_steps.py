"""Simulated step times of measured rows, from the training steps that are stored beside the datasets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput
from driple.contracts.formats.training_steps import STEPS
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.inspector.time.time_rows import TimeRow
from driple.pipeline.graph.public import StepKey, TrainingStep, read_steps, step_key, stored_step
from driple.simulator.simulation import simulate_workload

SIMULATED_STEPS = 6
"""Steps of each worker: the first one is left out."""

Progress = Callable[[int, int], None]


def with_simulation(
    rows: Sequence[TimeRow], datasets: Path, progress: Progress = lambda done, total: None
) -> tuple[TimeRow, ...]:
    """The rows with simulated step times, where the training step is stored and the device has a file.

    Args:
        rows: measured rows.
        datasets: the folder with the file of training steps.
        progress: called with the numbers of rows that are done and of all.

    Raises:
        BadInput: the file of training steps is something else.
    """
    path = datasets / STEPS
    stored: Mapping[StepKey, TrainingStep] = dict(read_steps(path)) if path.is_file() else {}
    found = []
    for number, row in enumerate(rows):
        progress(number, len(rows))
        workload = workload_of(row.example.workload)
        step = None if workload is None else _step(workload, row.setting, stored)
        seconds = None if workload is None or step is None else simulated_seconds(workload, row.setting, step)
        found.append(replace(row, simulated_s=seconds))
    return tuple(found)


def simulated_seconds(workload: Workload, setting: Setting, step: TrainingStep) -> float | None:
    """The simulated step time; None if the workload cannot be simulated on the setting."""
    try:
        return simulate_workload(workload, setting, step=step, steps=SIMULATED_STEPS).step_s
    except BadInput:
        return None


def workload_of(values: Mapping[str, Any]) -> Workload | None:
    """The workload of a dataset row; None for a model that is not of the zoo."""
    known = {one.name: values.get(one.name) for one in fields(Workload) if values.get(one.name) is not None}
    if values.get("code_sha256") is not None or "model" not in known:
        return None
    whole = {name: int(known[name]) for name in ("batch_size", "image_size", "sequence_length") if name in known}
    return Workload(**{**known, **whole})


def _step(workload: Workload, setting: Setting, stored: Mapping[StepKey, TrainingStep]) -> TrainingStep | None:
    return stored_step(workload, setting) or stored.get(step_key(workload, setting.servers))
