"""Simulated step times of measured rows, and how fast their machines are beside that of the device file.

The training steps of the rows are stored beside the datasets, or are those of the zoo. A machine has two speeds: as a
whole, and of its arithmetic beyond that, which newer processors have raised most. They have the least error of
simulated step times on some of its rows; few rows tell the first one alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.formats.training_steps import STEPS
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.inspector.time.time_rows import TimeRow
from driple.pipeline.graph.public import StepKey, TrainingStep, read_steps, step_key, stored_step
from driple.simulator.simulation import MachineSpeed, simulate_workload

SIMULATED_STEPS = 6
"""Steps of each worker: the first one is left out."""
SPEEDS = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
ARITHMETICS = (0.5, 1.0, 2.0, 4.0)
"""Values that are tried first, every pair of them."""
REFINED = (1.4, 1.2, 1.1, 1.05)
"""Factors in each further round: the best pair so far times and divided by it."""
MOST_ROWS = 24
"""Of a machine, that are simulated at every speed."""
USUAL = 0.02
"""What a logarithm of the speed of arithmetic costs, in errors: few rows tell it badly."""
LEAST_ROWS = 8
"""For the speed of arithmetic."""
WORST = 1.0
"""An error of the logarithm counts as this at most."""

Progress = Callable[[int, int], None]


class StepSimulator:
    """Simulates rows of datasets."""

    def __init__(self, datasets: Path) -> None:
        """Raises BadInput if the file of training steps in the folder is something else."""
        path = datasets / STEPS
        self._stored: Mapping[StepKey, TrainingStep] = dict(read_steps(path)) if path.is_file() else {}

    def seconds(self, row: TimeRow, speed: MachineSpeed | None) -> float | None:
        """The simulated step time; None if the step is not stored or the setting cannot be simulated."""
        workload = workload_of(row.example.workload)
        if workload is None:
            return None
        step = stored_step(workload, row.setting) or self._stored.get(step_key(workload, row.setting.servers))
        return None if step is None else simulated_seconds(workload, row.setting, step, speed)

    def speed_of(self, rows: Sequence[TimeRow]) -> MachineSpeed:
        """The speeds of the machine of these rows; those of the device file if none of them can be simulated."""
        some = [rows[place] for place in np.linspace(0, len(rows) - 1, min(len(rows), MOST_ROWS)).astype(int).tolist()]
        whole = len(some) < LEAST_ROWS
        best, least = MachineSpeed(), math.inf
        rounds = [list(product(SPEEDS, (1.0,) if whole else ARITHMETICS))]
        rounds += [list(product((1 / one, 1.0, one), (1.0,) if whole else (1 / one, 1.0, one))) for one in REFINED]
        for number, factors in enumerate(rounds):
            start = best if number else MachineSpeed()
            for speed, arithmetic in factors:
                tried = MachineSpeed(start.speed * speed, start.arithmetic * arithmetic)
                error = self._error(some, tried) + USUAL * abs(math.log(tried.arithmetic))
                if error < least:
                    best, least = tried, error
        return best

    def simulated(
        self, rows: Sequence[TimeRow], speeds: Mapping[str, MachineSpeed], progress: Progress = lambda done, total: None
    ) -> tuple[TimeRow, ...]:
        """The rows with simulated step times, and the speeds of their machines."""
        found = []
        for number, row in enumerate(rows):
            progress(number, len(rows))
            speed = speeds.get(row.machine)
            arithmetic = 1.0 if speed is None else speed.arithmetic
            found.append(replace(row, simulated_s=self.seconds(row, speed), arithmetic=arithmetic))
        return tuple(found)

    def _error(self, rows: Sequence[TimeRow], speed: MachineSpeed) -> float:
        pairs = [(self.seconds(row, speed), row.step_s) for row in rows]
        apart = [min(abs(math.log(found / measured)), WORST) for found, measured in pairs if found]
        return float(np.mean(apart)) if apart else math.inf


def simulated_seconds(
    workload: Workload, setting: Setting, step: TrainingStep, speed: MachineSpeed | None = None
) -> float | None:
    """The simulated step time; None if the workload cannot be simulated on the setting."""
    try:
        return simulate_workload(workload, setting, step=step, steps=SIMULATED_STEPS, speed=speed).step_s
    except BadInput:
        return None


def machine_speeds(simulator: StepSimulator, rows: Sequence[TimeRow]) -> dict[str, MachineSpeed]:
    """The speeds of every machine."""
    names = dict.fromkeys(row.machine for row in rows)
    return {name: simulator.speed_of([row for row in rows if row.machine == name]) for name in names}


def workload_of(values: Mapping[str, Any]) -> Workload | None:
    """The workload of a dataset row; None for a model that is not of the zoo."""
    known: dict[str, Any] = {one.name: values.get(one.name) for one in fields(Workload)}
    known = {name: value for name, value in known.items() if value is not None}
    if values.get("code_sha256") is not None or "model" not in known:
        return None
    for name in ("batch_size", "image_size", "sequence_length"):
        if name in known:
            known[name] = int(known[name])
    return Workload(**known)
