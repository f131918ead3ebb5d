"""Measured jobs: the rows of a dataset, one entry a workload, with the means over tasks and repetitions.

Processor seconds of a task per step follow from its burst metrics, which cover all of its time:

    cpu_s = step_s * (burst_s * burst_level + idle_s * idle_level) / (burst_s + idle_s)
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput
from driple.contracts.formats.dataset import MEASURED, SUFFIX
from driple.contracts.metrics import COLUMNS
from driple.contracts.run_spec import Workload
from driple.contracts.setting import CPU, Setting

STEP = "step_s"
TARGETS = (STEP, *COLUMNS)
LAB = "lab"
"""Kind of hosts that share the processors of one machine."""

_WORKLOAD = ("model", "dataset", "batch_size", "optimiser", "update", "image_size", "sequence_length", "width")
_WORKLOAD_TEXT = ("strategy", "sharding", "framework")
_OTHERS = ("family", "split_architecture", "role", "run_id", "provenance", "placement", "sampling_hz", "host_kind")
_NUMBERS = (STEP, "gpu_idle_pct", "measured_rate_mbit", "network_rate_mbit")
_OPTIONAL = ("network_rate_mbit", "code_sha256")


@dataclass(frozen=True, eq=False)
class MeasuredJob:
    """A workload on a setting."""

    workload: Workload
    setting: Setting
    family: str
    side: str
    """Of the architecture split."""
    together: tuple[tuple[str, ...], ...]
    """Groups of tasks that share a machine."""
    lab: bool
    """All hosts share the processors of one machine."""
    hz: float
    """Sampling rate."""
    link_bytes_per_s: float | None
    """Measured rate of a link."""
    targets: Mapping[str, float]
    """Means over workers: `step_s` and the burst metrics that were measured."""
    worker_cpu_s: float | None
    """Processor seconds of a worker in a step."""
    server_cpu_s: float | None
    """Of all servers together."""


def read_jobs(datasets: Path, setting: Setting) -> list[MeasuredJob]:
    """The jobs of `<datasets>/<setting>.parquet`, or of that file.

    Raises:
        BadInput: there is no such dataset, its device is not a processor, or no row has a step time.
    """
    path = datasets if datasets.is_file() else datasets / f"{setting}{SUFFIX}"
    if setting.device != CPU:
        raise BadInput(f"{setting}: parameters are fitted to rows of {CPU} settings; run driple-calibrate on the GPU")
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    if not path.is_file():
        known = sorted(one.stem for one in datasets.glob(f"*{SUFFIX}")) if datasets.is_dir() else []
        raise BadInput(f"{path}: no such dataset ({datasets} has {', '.join(known) or 'none'})")
    try:
        names = parquet.read_schema(path).names
        wanted = {*_WORKLOAD, *_WORKLOAD_TEXT, *_OTHERS, *_NUMBERS, "code_sha256", *COLUMNS}
        lacking = sorted(wanted - {*names, *_OPTIONAL, *COLUMNS})
        rows = [] if lacking else parquet.read_table(path, columns=sorted(wanted & {*names})).to_pylist()
    except (arrow.ArrowException, OSError, ValueError):
        raise BadInput(f"{path}: not a dataset that can be read; rebuild it (driple-build-dataset)") from None
    if lacking:
        raise BadInput(f"{path}: column {lacking[0]!r} is missing; rebuild it (driple-build-dataset)")
    try:
        return jobs_of(rows, setting)
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def jobs_of(rows: Iterable[Mapping[str, Any]], setting: Setting) -> list[MeasuredJob]:
    """The jobs of dataset rows. Raises BadInput if no measured row has a step time."""
    by_workload: dict[Workload, list[Mapping[str, Any]]] = {}
    for row in rows:
        if row["provenance"] == MEASURED and row[STEP] is not None:
            by_workload.setdefault(_workload(row), []).append(row)
    if not by_workload:
        raise BadInput("no measured row with a step time; measure some workloads with driple-run first")
    return [_job(workload, own, setting) for workload, own in by_workload.items()]


def _workload(row: Mapping[str, Any]) -> Workload:
    values = {name: row[name] for name in (*_WORKLOAD, *_WORKLOAD_TEXT)}
    for name in ("image_size", "sequence_length"):
        values[name] = None if row[name] is None else int(row[name])
    return Workload(**values, code_sha256=row.get("code_sha256"))


def _job(workload: Workload, rows: list[Mapping[str, Any]], setting: Setting) -> MeasuredJob:
    workers = [row for row in rows if row["role"] == "worker"]
    first = (workers or rows)[0]
    targets = {name: mean for name in TARGETS if (mean := _mean(row.get(name) for row in workers or rows)) is not None}
    runs: dict[str, list[float]] = {}
    for row in rows:
        used = cpu_s(row)
        if row["role"] == "ps" and used is not None:
            runs.setdefault(row["run_id"], []).append(used)
    rate = _mean(row["measured_rate_mbit"] for row in rows)
    return MeasuredJob(
        workload=workload,
        setting=setting,
        family=str(first["family"]),
        side=str(first["split_architecture"]),
        together=tuple(map(tuple, json.loads(first["placement"]))),
        lab=first["host_kind"] == LAB,
        hz=float(first["sampling_hz"]),
        link_bytes_per_s=None if rate is None or setting.link_mbit is None else rate * 1e6 / 8,
        targets=targets,
        worker_cpu_s=_mean(cpu_s(row) for row in workers),
        server_cpu_s=_mean(sum(used) for used in runs.values()),
    )


def cpu_s(row: Mapping[str, Any]) -> float | None:
    """Processor seconds of a task in a step, by the formula above; None if they were not measured."""
    burst, idle, level = (row.get(name) for name in ("gpu_burst_s", "gpu_idle_s", "gpu_burst_pct"))
    if level is None or burst is None and idle is None:
        return None
    burst, idle, rest = burst or 0.0, idle or 0.0, row.get("gpu_idle_pct") or 0.0
    return float(row[STEP] * (burst * level + idle * rest) / (burst + idle) / 100) if burst + idle > 0 else None


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
