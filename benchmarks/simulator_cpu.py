"""The simulator against the measured rows of CPU settings, on families that no parameter was fitted to.

    python benchmarks/simulator_cpu.py                      all of it: about half an hour of one core
    python benchmarks/simulator_cpu.py --tables             the tables of the figures that are kept

`families` deals the families of the training and validation sides into the folds of results_families.py. For every fold
op rates, timing constants and correction are fitted anew to the other folds. `architecture` and `transfer` fit once, to
the training and validation sides, and predict the test side: `transfer` has the parameters and the correction of
cpu-p1w2-1g, and of another machine a speed from a few training rows. Beside them are today's inspector, trees and the
mean, on the same rows. Parts that are done are not done again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import torch
from results_contest import SOURCE, say, settings_in
from results_families import SPLIT, _rounds, dealt
from simulator_cpu_tables import PARTS, tables

from driple.contracts.formats.device import DeviceFile
from driple.contracts.metrics import COLUMNS
from driple.contracts.run_dir import replacing
from driple.contracts.setting import Setting
from driple.inspector.base_model.log_correction import LogCorrection, Simulated, fit_correction
from driple.inspector.data.array_types import FloatArray
from driple.inspector.data.dataset_rows import read_examples
from driple.inspector.data.examples import Example, Examples
from driple.inspector.evaluation import baselines
from driple.inspector.model.model_config import preset
from driple.inspector.training.train_inspector import train_inspector
from driple.simulator.fit.fit_rows import fit_rows, fit_speed, replays_of
from driple.simulator.fit.measured_jobs import STEP, read_jobs
from driple.simulator.fit.replay import Replay, targets
from driple.simulator.fit.step_source import StepFile
from driple.simulator.host_model import host_model

KEPT = Path("benchmarks/data/simulator-cpu.json")
DIGITS = 4
SPEED_ROWS = 8
"""Training rows of another machine, from which its speed is fitted."""
ANOTHER_MACHINE = ("cpu-p1w1-1g",)
PEERS = ("inspector", "trees", "mean")

Files = tuple[DeviceFile, DeviceFile]


class Rows:
    """The workloads of a setting, as the inspector and as the simulator have them."""

    def __init__(self, datasets: Path, setting: str, steps: StepFile) -> None:
        self.setting = setting
        self.examples = read_examples(datasets, setting)
        replays = replays_of(read_jobs(datasets, Setting.parse(setting)), steps)
        self._replays = {_key(vars(one.job.workload)): one for one in replays}

    def replays(self, items: Sequence[Example]) -> list[Replay]:
        """Those of some examples."""
        return [self._replays[_key(item.workload)] for item in items]


def _key(workload: Any) -> tuple[Any, ...]:
    names = ("model", "dataset", "batch_size", "optimiser", "update", "image_size", "sequence_length", "width")
    return tuple(workload[name] for name in names)


def measure(datasets: Path, tries: int, kept: Path, asked: Sequence[str], settings: Sequence[str]) -> dict[str, Any]:
    """The parts that are asked for, each kept as soon as it is done."""
    found: dict[str, Any] = json.loads(kept.read_text()) if kept.is_file() else {}
    steps = StepFile(datasets / "steps" / "lab.parquet", say)
    rows = {setting: Rows(datasets, setting, steps) for setting in settings_in(datasets)}
    for name, setting, part in _parts(rows, tries):
        wanted = name.partition(" ")[0] in asked and setting in settings
        if wanted and name not in found.setdefault(setting, {}):
            say(f"{setting}: {name}")
            found[setting][name] = {"date": str(date.today()), **part()}
            kept.parent.mkdir(parents=True, exist_ok=True)
            with replacing(kept) as stream:
                json.dump(found, stream, separators=(",", ":"))
                stream.write("\n")
    return found


def _parts(rows: dict[str, Rows], tries: int) -> Iterator[tuple[str, str, Any]]:
    for setting, own in rows.items():
        known = replace(own.examples, items=tuple(i for i in own.examples.items if i.split_architecture != "test"))
        folds = dealt(Counter(str(item.workload["family"]) for item in known.items))
        for number, fold in enumerate(_rounds(known, folds)):
            yield f"families {number}", setting, lambda own=own, fold=fold: _fold(own, fold, tries)
    for setting, own in rows.items():
        yield "architecture", setting, lambda own=own: _fold(own, own.examples, tries)
    for setting, own in rows.items():
        if setting != SOURCE:
            yield "transfer", setting, lambda own=own: _transfer(rows[SOURCE], own, tries)


def _fold(rows: Rows, examples: Examples, tries: int) -> dict[str, Any]:
    """What is learned from the training and validation sides of the examples, and said of their test side."""
    known = [item for item in examples.items if item.split_architecture != "test"]
    test = examples.side(SPLIT, "test")
    files = _fitted(rows, known, tries)
    correction = _corrected_by(rows, known, files)
    return {**_said(rows, test, files, correction), "peers": _peers(examples, test), "host": _values(files)}


def _transfer(source: Rows, rows: Rows, tries: int) -> dict[str, Any]:
    """What is learned from the source, and said of the test side of another setting."""
    known = [item for item in source.examples.items if item.split_architecture != "test"]
    files = _fitted(source, known, tries)
    correction = _corrected_by(source, known, files)
    if rows.setting in ANOTHER_MACHINE:
        train = rows.examples.side(SPLIT, "train").items
        chosen = np.random.default_rng(0).choice(len(train), SPEED_ROWS, replace=False)
        replays = rows.replays([train[number] for number in chosen.tolist()])
        files = (fit_speed(replays, *files, source=rows.setting, date=str(date.today())), files[1])
    return {**_said(rows, rows.examples.side(SPLIT, "test"), files, correction), "host": _values(files)}


def _fitted(rows: Rows, items: Sequence[Example], tries: int) -> Files:
    return fit_rows(rows.replays(items), source=rows.setting, date=str(date.today()), tries=tries)


def _corrected_by(rows: Rows, items: Sequence[Example], files: Files) -> LogCorrection:
    return fit_correction(_simulated(rows, items, files)[0], np.array([item.targets for item in items]))


def _simulated(rows: Rows, items: Sequence[Example], files: Files) -> tuple[Simulated, list[dict[str, float]]]:
    replays = rows.replays(items)
    said = [targets(one, files[0], host_model(files[1])) for one in replays]
    simulated = Simulated(
        values=np.array([[one.get(name, np.nan) for name in COLUMNS] for one in said]),
        step_s=np.array([one[STEP] for one in said]),
        moved_bytes=np.array([one.step.pulled_bytes + one.step.pushed_bytes for one in replays]),
        ops=np.array([float(one.step.executions.sum()) for one in replays]),
        is_async=np.array([float(one.job.workload.update == "async") for one in replays]),
    )
    return simulated, said


def _said(rows: Rows, test: Examples, files: Files, correction: LogCorrection) -> dict[str, Any]:
    simulated, said = _simulated(rows, test.items, files)
    replays = rows.replays(test.items)
    return {
        "workloads": [one.job.workload.label for one in replays],
        "families": [one.job.family for one in replays],
        "measured": _rounded(test.targets()),
        "measured_step_s": _rounded(np.array([one.job.targets[STEP] for one in replays])),
        "simulated": _rounded(simulated.values),
        "simulated_step_s": _rounded(np.array([one[STEP] for one in said])),
        "corrected": _rounded(correction.correct(simulated)),
    }


def _peers(examples: Examples, test: Examples) -> dict[str, Any]:
    """Today's inspector, trees and the mean, learned from the same rows."""
    found = {"inspector": train_inspector(examples, preset("driple"), split=SPLIT, seed=0).inspector.predict(test)[0]}
    train, val = (examples.side(SPLIT, side) for side in ("train", "val"))
    found |= {name: baselines.fit(name, train, val, 0)(test) for name in PEERS if name != "inspector"}
    return {name: _rounded(values) for name, values in found.items()}


def _values(files: Files) -> dict[str, float]:
    return {name: one.value for file in files for name, one in file.parameters.items()}


def _rounded(values: FloatArray) -> list[Any]:
    def short(value: Any) -> Any:
        if isinstance(value, list):
            return [short(one) for one in value]
        return None if np.isnan(value) else float(f"{value:.{DIGITS}g}")

    return [short(value) for value in values.tolist()]


def main(argv: Sequence[str] | None = None) -> int:
    """Makes what is missing, then prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--datasets", type=Path, default=Path("datasets"))
    parser.add_argument("--out", type=Path, default=KEPT, help="figures by workload (%(default)s)")
    parser.add_argument("--part", action="append", choices=PARTS, help="default: all")
    parser.add_argument("--setting", action="append", help="default: all")
    parser.add_argument("--tries", type=int, default=15, help="sets of timing constants in every fit (%(default)s)")
    parser.add_argument("--tables", action="store_true", help="print the tables of what is there")
    arguments = parser.parse_args(argv)
    torch.set_num_threads(1)
    if not arguments.tables:
        settings = arguments.setting or settings_in(arguments.datasets)
        measure(arguments.datasets, arguments.tries, arguments.out, arguments.part or list(PARTS), settings)
    print(tables(json.loads(arguments.out.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
