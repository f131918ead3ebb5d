"""TimeRow: a measured workload with its step time, and the machine and the setting on which it ran."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput, BadSetting
from driple.contracts.fingerprint import Fingerprint
from driple.contracts.formats.dataset import FINGERPRINT, MEASURED, SUFFIX
from driple.contracts.machine_identity import fingerprint_of, same_machine
from driple.contracts.setting import Setting
from driple.contracts.strategy import WORKER
from driple.inspector.data.array_types import FloatArray
from driple.inspector.data.dataset_rows import read_examples
from driple.inspector.data.examples import Example
from driple.inspector.time.time_table import Site, TimeTable

_HOST = ("host_kernel", "host_cores", "host_memory_bytes")
"""What identifies a machine in rows that are older than fingerprints."""
_STEP = "step_s"


class Machines:
    """Labels of machines: one for all fingerprints that are nearly equal."""

    def __init__(self, known: Mapping[str, Fingerprint] | None = None) -> None:
        self.fingerprints: dict[str, Fingerprint] = dict(known or {})

    def label(self, row: Mapping[str, Any]) -> str:
        """The label of the machine of a dataset row; of an old row, kernel, processors and memory of its host."""
        found = fingerprint_of(row)
        return "/".join(str(row.get(name)) for name in _HOST) if found is None else self.label_of(found)

    def label_of(self, found: Fingerprint) -> str:
        """The label of the machine with this fingerprint; a new one is remembered."""
        for label, other in self.fingerprints.items():
            if same_machine(found, other):
                return label
        label = (
            f"{found.cores} cores, SHA-256 {found.hash_bytes_per_s / 1e9:.3f} GB/s, zlib"
            f" {found.deflate_bytes_per_s / 1e6:.1f} MB/s, copy {found.copy_bytes_per_s / 1e9:.1f} GB/s"
        )
        self.fingerprints[label] = found
        return label


@dataclass(frozen=True, eq=False, kw_only=True)
class TimeRow:
    """A workload on a setting. Its step time is the mean over workers and repetitions."""

    example: Example
    setting: Setting
    machine: str
    """Label of the machine: rows with equal labels ran on equally fast machines."""
    step_s: float
    repeats: tuple[float, ...]
    """Step time of each run."""
    simulated_s: float | None = None
    """The step time as simulated (simulated_steps.py); None where it cannot be simulated."""
    arithmetic: float = 1.0
    """How much faster arithmetic is on the machine, beyond what is faster as a whole."""

    @property
    def site(self) -> Site:
        return str(self.setting), self.machine, str(self.example.workload["framework"])

    @property
    def family(self) -> str:
        return str(self.example.workload["family"])

    @property
    def model(self) -> str:
        return str(self.example.workload["model"])

    @property
    def label(self) -> str:
        """A key of the workload, the same on every setting."""
        names = ("model", "dataset", "batch_size", "image_size", "sequence_length", "width", "optimiser", "update")
        own = [self.example.workload.get(name) for name in (*names, "strategy", "framework", "topology")]
        return "|".join("-" if value is None else str(value) for value in own)


def measured_settings(datasets: Path) -> tuple[str, ...]:
    """The settings with a file of measured rows in a folder of datasets."""
    found = []
    for path in sorted(datasets.glob(f"*{SUFFIX}")):
        try:
            found.append(str(Setting.parse(path.stem)))
        except BadSetting:
            continue  # another file of the user
    return tuple(found)


def read_time_rows(
    datasets: Path, settings: Sequence[str] | None = None, machines: Machines | None = None
) -> tuple[TimeRow, ...]:
    """The rows of workers of measured settings, in the order of settings and of each file.

    Args:
        datasets: a folder of datasets.
        settings: which; default all measured ones in the folder.
        machines: that are known; those of the rows are added.

    Raises:
        BadInput: there is none, or one cannot be read.
    """
    wanted = measured_settings(datasets) if settings is None else tuple(settings)
    if not wanted:
        raise BadInput(f"{datasets}: no measured datasets; make them with driple-run and driple-build-dataset")
    machines = Machines() if machines is None else machines
    found: list[TimeRow] = []
    for name in wanted:
        examples = read_examples(datasets, name, WORKER, mix_machines=True)
        if examples.provenance != MEASURED:
            continue
        runs = _runs(datasets / f"{name}{SUFFIX}", machines)
        for item in examples.items:
            by_machine: dict[str, list[float]] = defaultdict(list)
            for run in item.run_ids:
                if run in runs:
                    machine, step_s = runs[run]
                    by_machine[machine].append(step_s)
            found += [
                TimeRow(
                    example=item,
                    setting=Setting.parse(name),
                    machine=machine,
                    step_s=float(np.mean(steps)),
                    repeats=tuple(steps),
                )
                for machine, steps in by_machine.items()
            ]
    if not found:
        raise BadInput(f"{datasets}: no measured step time in {', '.join(wanted)}; rebuild the datasets")
    return tuple(found)


def table_of(rows: Sequence[TimeRow]) -> TimeTable:
    """What is known of the rows before they run."""
    arithmetic = np.array([row.arithmetic for row in rows])
    return TimeTable.of([row.example for row in rows], [row.setting for row in rows], arithmetic)


def step_times(rows: Iterable[TimeRow]) -> FloatArray:
    """[n] seconds."""
    return np.array([row.step_s for row in rows], dtype=np.float64)


def _runs(path: Path, machines: Machines) -> dict[str, tuple[str, float]]:
    """Machine and mean step time of the workers, by run."""
    import pyarrow.parquet as pq

    names = set(pq.read_schema(path).names)
    wanted = ["run_id", "role", _STEP, *_HOST, *(column.name for column in FINGERPRINT)]
    rows = pq.read_table(path, columns=[name for name in wanted if name in names]).to_pylist()
    steps: dict[str, list[float]] = defaultdict(list)
    machine: dict[str, str] = {}
    for row in rows:
        if row["role"] == WORKER and row.get(_STEP):
            steps[row["run_id"]].append(row[_STEP])
            machine[row["run_id"]] = machines.label(row)
    return {run: (machine[run], float(np.mean(values))) for run, values in steps.items()}
