"""train_time: from the measured datasets of all settings to one time model."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from driple.contracts.data_frame import data_frame
from driple.contracts.formats.dataset import MEASURED, dataset_path
from driple.contracts.formats.step_time import FOLDER
from driple.inspector.data.array_types import FloatArray
from driple.inspector.model.inspector_folder import versions
from driple.inspector.predict.number_format import NONE
from driple.inspector.time import held_out, time_folder
from driple.inspector.time.simulated_steps import StepSimulator, machine_speeds, workload_of
from driple.inspector.time.step_distribution import LEVEL, StepDistribution
from driple.inspector.time.time_model import TimeModel
from driple.inspector.time.time_predictor import TimePredictor
from driple.inspector.time.time_rows import Machines, TimeRow, read_time_rows, step_times

Progress = Callable[[str, int, int], None]
"""Called with the part of the work, and the numbers of its pieces that are done and of all."""
NOTHING: Progress = lambda part, done, total: None  # noqa: E731  a default that does nothing


@dataclass(frozen=True)
class SettingErrors:
    """Errors of the step time on one setting, in percent of the measured time."""

    setting: str
    machine: str
    workloads: int
    simulated: int
    """Workloads of which a simulation is known."""
    noise: float | None
    """One run against the mean of its repetitions; None without repetitions."""
    family: float | None
    """Families left out: mean absolute error; None where nothing was left to learn from."""
    family_median: float | None
    coverage: float | None
    """Share of these within the interval that the other families give, in percent."""
    new_setting: float | None
    """Setting and family left out, machine known."""
    new_machine: float | None
    """Machine left out, with one anchor run of each of its settings."""


@dataclass(frozen=True)
class TimeTraining:
    """A trained time model and its errors on what it had not seen."""

    folder: Path
    predictor: TimePredictor
    settings: tuple[SettingErrors, ...]
    provenance: str = MEASURED

    def to_frame(self) -> Any:
        """A row for each setting, as a pandas DataFrame."""
        return data_frame(map(asdict, self.settings))

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "folder": str(self.folder),
            "provenance": self.provenance,
            "level": LEVEL,
            "settings": [asdict(one) for one in self.settings],
        }

    def __str__(self) -> str:
        head: tuple[str, ...] = ("setting", "workloads", "simulated", "noise", "family left out")
        head += ("median", "in 90 %", "setting", "machine")
        rows = [head]
        for one in self.settings:
            numbers = (one.noise, one.family, one.family_median, one.coverage, one.new_setting, one.new_machine)
            cells = (NONE if number is None else f"{number:.1f} %" for number in numbers)
            rows.append((one.setting, str(one.workloads), str(one.simulated), *cells))
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["Mean absolute error of the step time on workloads that the model had not seen, in percent."]
        lines += ["setting, machine: that was left out too; machine: with one anchor run of each setting", ""]
        for name, *others in rows:
            aligned = "  ".join(f"{cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True))
            lines.append(f"{name:<{widths[0]}}  {aligned}")
        return "\n".join(lines)


def train_time(
    datasets: str | Path = "datasets",
    *,
    settings: Sequence[str] | None = None,
    output: str | Path = "inspectors",
    progress: Progress = NOTHING,
) -> TimeTraining:
    """Trains one time model over all measured settings, and stores it beside the inspectors.

    Args:
        datasets: the folder of datasets.
        settings: of which; default all measured ones.
        output: the folder of inspectors.
        progress: see Progress.

    Raises:
        BadInput: no measured rows, or too few.
    """
    datasets, folder = Path(datasets), Path(output) / FOLDER
    machines = Machines()
    rows = read_time_rows(datasets, settings, machines)
    simulator = StepSimulator(datasets)
    progress("speeds of machines", 0, 1)
    speeds = machine_speeds(simulator, rows)
    rows = simulator.simulated(rows, speeds, partial(progress, "simulating"))
    model = TimeModel.fit(rows, speeds)
    of_families = held_out.of_families(rows, partial(progress, "leaving families out"), model)
    of_settings = held_out.of_settings(rows, partial(progress, "leaving settings out"), model)
    of_machines = held_out.of_machines(rows, simulator, partial(progress, "leaving machines out"))
    errors = held_out.errors_of(rows, of_families)
    sites = np.array([" ".join(row.site) for row in rows])
    by_site = {row.site: _known(errors[sites == " ".join(row.site)]) for row in rows}
    predictor = TimePredictor(
        model,
        by_site,
        _known(held_out.errors_of(rows, of_settings)),
        _known(held_out.errors_of(rows, of_machines)),
        {site: int((sites == " ".join(site)).sum()) for site in by_site},
        _anchor(held_out.best_anchor(rows)),
    )
    names = dict.fromkeys(str(row.setting) for row in rows)
    hashes = {name: hashlib.sha256(dataset_path(datasets, name).read_bytes()).hexdigest() for name in names}
    time_folder.save(folder, predictor, machines.fingerprints, datasets=hashes, versions=versions())
    table = [_of_setting(name, rows, of_families, of_settings, of_machines) for name in names]
    return TimeTraining(folder, predictor, tuple(table))


def _known(errors: FloatArray) -> tuple[float, ...]:
    return tuple(sorted(round(float(one), 5) for one in errors if math.isfinite(one)))


def _anchor(row: TimeRow) -> str:
    workload = workload_of(row.example.workload)
    return row.model if workload is None else workload.label


def _of_setting(name: str, rows: Sequence[TimeRow], *predicted: FloatArray) -> SettingErrors:
    mine = np.array([str(row.setting) == name for row in rows])
    own = [row for row, kept in zip(rows, mine, strict=True) if kept]
    seconds = step_times(own)
    relative = [100 * np.abs(one[mine] / seconds - 1) for one in predicted]
    family, setting, machine = (one[np.isfinite(one)] for one in relative)
    return SettingErrors(
        setting=name,
        machine=" and ".join(dict.fromkeys(row.machine for row in own)),
        workloads=len(own),
        simulated=sum(row.simulated_s is not None for row in own),
        noise=_mean([100 * one for row in own for one in noise_of(row)]),
        family=_mean(family),
        family_median=float(np.median(family)) if len(family) else None,
        coverage=_coverage(own, predicted[0][mine]),
        new_setting=_mean(setting),
        new_machine=_mean(machine),
    )


def noise_of(row: TimeRow) -> list[float]:
    """Of each run of a workload: its relative distance from the mean of the others; empty without repetitions."""
    runs = np.array(row.repeats)
    if len(runs) < 2:
        return []
    others = (runs.sum() - runs) / (len(runs) - 1)
    return [float(one) for one in np.abs(runs / others - 1)]


def _coverage(rows: Sequence[TimeRow], predicted: FloatArray) -> float | None:
    """Share of rows within the interval that the errors of the other families give, in percent."""
    errors = held_out.errors_of(rows, predicted)
    families = np.array([row.family for row in rows])
    inside = []
    for number, row in enumerate(rows):
        others = errors[(families != row.family) & np.isfinite(errors)]
        if math.isfinite(predicted[number]) and len(others):
            low, high = StepDistribution.of(float(predicted[number]), others.tolist()).interval()
            inside.append(low <= row.step_s <= high)
    return 100 * float(np.mean(inside)) if inside else None


def _mean(values: Sequence[float] | FloatArray) -> float | None:
    return float(np.mean(values)) if len(values) else None
