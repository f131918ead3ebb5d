"""Measured rows with their simulated step times, which are kept: a simulation takes some 40 ms a row."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

import driple.simulator
from driple.contracts.formats.training_steps import STEPS
from driple.contracts.run_dir import replacing
from driple.inspector.time.simulated_steps import simulated_seconds, with_simulation, workload_of
from driple.inspector.time.time_rows import TimeRow
from driple.pipeline.graph.public import read_steps, step_key
from time_contest.kept_predictions import hash_of_files

MEASURED = 20
"""Simulations whose time is measured."""


def simulated_rows(rows: Sequence[TimeRow], datasets: Path, folder: Path) -> tuple[TimeRow, ...]:
    """The rows with simulated step times, from a folder if the simulator and its files are the same."""
    simulator = Path(str(driple.simulator.__file__)).parent
    code = hash_of_files([simulator, *sorted(simulator.rglob("*.json")), datasets / STEPS])
    path = folder / f"simulated-{code[:12]}.json"
    if path.is_file():
        known = json.loads(path.read_text())
        return tuple(replace(row, simulated_s=seconds) for row, seconds in zip(rows, known, strict=True))
    found = with_simulation(rows, datasets)
    folder.mkdir(parents=True, exist_ok=True)
    with replacing(path) as stream:
        json.dump([row.simulated_s for row in found], stream)
    return found


def simulation_seconds(rows: Sequence[TimeRow], datasets: Path) -> float:
    """Median time of a simulation, with the training step in memory."""
    stored = dict(read_steps(datasets / STEPS))
    found = []
    for place in np.random.default_rng(0).permutation(len(rows)).tolist():
        workload = workload_of(rows[place].example.workload)
        step = None if workload is None else stored.get(step_key(workload, rows[place].setting.servers))
        if workload is not None and step is not None:
            begin = time.perf_counter()
            simulated_seconds(workload, rows[place].setting, step)
            found.append(time.perf_counter() - begin)
        if len(found) == MEASURED:
            break
    return statistics.median(found)
