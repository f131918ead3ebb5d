"""Measured rows with their simulated step times, at speeds of machines that a fold may know. All are kept.

A machine has two speeds in simulations, fitted to at most twenty of its rows (simulated_steps.py). In most
folds it is that of all rows of the machine. A fold that leaves a setting or a machine out says from which rows it is
fitted (`Fold.speed_rows`), and the rows of that machine are then simulated again.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np

import driple.simulator
from driple.contracts.formats.training_steps import STEPS
from driple.contracts.run_dir import replacing
from driple.inspector.time.simulated_steps import StepSimulator
from driple.inspector.time.time_rows import TimeRow
from driple.simulator.simulation import MachineSpeed
from time_contest.folds import Fold
from time_contest.kept_predictions import hash_of_files

MEASURED = 20
"""Simulations whose time is measured."""

Seconds = list[float | None]


class SimulatedRows:
    """Rows, and their simulated step times by machine and speed."""

    def __init__(self, rows: Sequence[TimeRow], datasets: Path, folder: Path, say: Callable[[str], None]) -> None:
        simulator = Path(str(driple.simulator.__file__)).parent
        steps = Path(__file__).parents[2] / "inspector" / "time" / "simulated_steps.py"
        code = hash_of_files([simulator, *sorted(simulator.rglob("*.json")), steps, datasets / STEPS])
        self._folder = folder / f"simulated-{code[:12]}"
        self._say = say
        self._simulator = StepSimulator(datasets)
        self._rows = tuple(rows)
        self._usual: tuple[TimeRow, ...] | None = None

    @property
    def usual(self) -> tuple[TimeRow, ...]:
        """Every row at the speed that all rows of its machine give."""
        if self._usual is None:
            found = list(self._rows)
            for machine in dict.fromkeys(row.machine for row in self._rows):
                self._simulate(found, machine, self._rows_of(machine))
            self._usual = tuple(found)
        return self._usual

    def of(self, fold: Fold) -> tuple[TimeRow, ...]:
        """The rows as a fold may know them."""
        if fold.speed_rows is None:
            return self.usual
        found = list(self.usual)
        (machine,) = {self._rows[number].machine for number in fold.test}
        self._simulate(found, machine, fold.speed_rows)
        return tuple(found)

    def answer_seconds(self) -> float:
        """Median time of a simulation, with the training step in memory."""
        found = []
        for place in np.random.default_rng(0).permutation(len(self._rows))[: 2 * MEASURED].tolist():
            begin = time.perf_counter()
            if self._simulator.seconds(self._rows[place], MachineSpeed()) is not None:
                found.append(time.perf_counter() - begin)
        return statistics.median(found[:MEASURED])

    def _rows_of(self, machine: str) -> tuple[int, ...]:
        return tuple(number for number, row in enumerate(self._rows) if row.machine == machine)

    def _simulate(self, rows: list[TimeRow], machine: str, speed_rows: Sequence[int]) -> None:
        """Puts simulated times into the rows of a machine, at the speeds that some rows give; 1 without any."""
        own = self._rows_of(machine)
        key = sha256(repr((machine, own, tuple(speed_rows))).encode()).hexdigest()[:16]
        path = self._folder / f"{key}.json"
        if path.is_file():
            speed, known = _decoded(json.loads(path.read_text()))
        else:
            known_rows = [self._rows[number] for number in speed_rows]
            speed = self._simulator.speed_of(known_rows) if known_rows else MachineSpeed()
            self._say(f"simulates {len(own)} rows of machine {machine} at {speed.speed:.3g} x {speed.arithmetic:.3g}")
            known = [self._simulator.seconds(self._rows[number], speed) for number in own]
            self._folder.mkdir(parents=True, exist_ok=True)
            with replacing(path) as stream:
                json.dump({"speed": speed, "seconds": known}, stream)
        for number, seconds in zip(own, known, strict=True):
            rows[number] = replace(rows[number], simulated_s=seconds, arithmetic=speed.arithmetic)


def _decoded(value: dict[str, list[float]]) -> tuple[MachineSpeed, Seconds]:
    return MachineSpeed(*value["speed"]), list(value["seconds"])
