"""Training steps of a dataset's workloads in one compact Parquet file: what a fit needs of graphs, without TensorFlow.

A row is the step of a worker for one workload and number of servers. The optimiser and the update mode do not change
it, so they are not part of its key. Configurations that `zoo_graphs/` has are not stored again.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driple.contracts.errors import BadInput, RunFailed
from driple.contracts.formats.training_steps import KEY_COLUMNS, LIST_COLUMNS, METADATA
from driple.contracts.run_dir import replacing
from driple.contracts.run_spec import JobSpec, Measurement, RunSpec, TaskSpec, Workload
from driple.contracts.setting import Setting
from driple.pipeline.graph.public import WINDOW, TrainingStep, Transfer, read_step, stored_step

BUILD_S = 600.0
"""Longest time to build the graph of one workload."""

Key = tuple[str, str, int, float, int, int, str, int]
_NUMBERS = ("flops", "read_bytes", "written_bytes", "executions")


STEPS = Path("steps", "lab.parquet")
"""In a folder of datasets: training steps of their workloads."""


def key_of(workload: Workload, servers: int) -> Key:
    """What a step depends on: the names of KEY_COLUMNS. An unknown size is 0; with one server there is one sharding."""
    sizes = (workload.image_size or 0, workload.sequence_length or 0)
    sharding = workload.sharding if servers > 1 else ""
    return (workload.model, workload.dataset, workload.batch_size, workload.width, *sizes, sharding, servers)


class StepFile:
    """Steps of workloads: from the zoo, from the file, and from TensorFlow, which then go into the file."""

    def __init__(self, path: Path, say: Callable[[str], None] = lambda text: None) -> None:
        """Reads the file, if there is one. Raises BadInput if it is of another kind."""
        self.path = path
        self._say = say
        self._stored: dict[Key, TrainingStep] = dict(read_steps(path)) if path.is_file() else {}
        self._zoo: dict[Key, TrainingStep | None] = {}

    def step(self, workload: Workload, setting: Setting) -> TrainingStep:
        """The step of a workload. Raises BadInput if it must be built and TensorFlow is not installed."""
        key = key_of(workload, setting.servers)
        if key not in self._zoo:
            self._zoo[key] = stored_step(workload, setting)
        found = self._zoo[key] or self._stored.get(key)
        if found is None:
            self._say(f"{workload.label}: builds its graph")
            found = self._stored[key] = built_step(workload, setting)
            write_steps(self._stored, self.path)
        return found


def built_step(workload: Workload, setting: Setting) -> TrainingStep:
    """The step of a graph that TensorFlow builds now. Raises BadInput or RunFailed in one line."""
    if find_spec("tensorflow") is None:
        raise BadInput(
            f"{workload.label}: its graph is not stored and is built with TensorFlow, which is not installed here: pip"
            " install 'driple[workloads]'"
        )
    tasks = tuple(TaskSpec(task, "nowhere", f"127.0.0.1:{port}") for port, task in enumerate(setting.tasks, start=1))
    spec = RunSpec(setting, replace(workload, update="sync"), Measurement(steps=1), together=(setting.tasks,))
    with tempfile.TemporaryDirectory() as folder:
        job, graph = Path(folder, "job.json"), Path(folder, "worker.parquet")
        job.write_text(json.dumps(JobSpec(spec, tasks).to_json()))
        command = [sys.executable, "-m", "driple.workloads.cli", "graph", "--job", str(job), "--out", str(graph)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BUILD_S)
        if done.returncode:
            last = ([line for line in done.stderr.splitlines() if line.strip()] or ["no message"])[-1]
            raise (BadInput if done.returncode == BadInput.exit_code else RunFailed)(last)
        return read_step(graph, loop_length=workload.sequence_length or 1)


def write_steps(steps: Mapping[Key, TrainingStep], path: Path) -> None:
    """Writes a file; equal steps give equal bytes."""
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    columns = [(name, getattr(arrow, kind)()) for name, kind in KEY_COLUMNS.items()]
    columns += [(name, arrow.list_(getattr(arrow, kind)())) for name, kind in LIST_COLUMNS.items()]
    schema = arrow.schema(columns, metadata=METADATA)
    rows = [{**dict(zip(KEY_COLUMNS, key, strict=True)), **_lists(steps[key])} for key in sorted(steps)]
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, "wb") as stream:
        table = arrow.Table.from_pylist(rows, schema=schema)
        parquet.write_table(table, stream, compression="zstd", compression_level=19, write_statistics=False)


def read_steps(path: Path) -> Iterator[tuple[Key, TrainingStep]]:
    """The steps of a file. Raises BadInput if it is of another kind."""
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    try:
        table = parquet.read_table(path)
        if {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()} != METADATA:
            raise ValueError("another format or version")
        rows = table.to_pylist()
    except (arrow.ArrowException, OSError, ValueError):
        raise BadInput(f"{path}: not a file of training steps; name another, or delete it to build it again") from None
    for row in rows:
        key = tuple(row[name] for name in KEY_COLUMNS)
        yield key, _step(row)


def _lists(step: TrainingStep) -> dict[str, Any]:
    where = np.flatnonzero(step.windows.any(axis=1))
    lists: dict[str, Any] = {"ops": list(step.ops)}
    lists |= {name: getattr(step, name).astype(np.int64) for name in _NUMBERS}
    lists["windows"] = np.concatenate([where[:, None], step.windows[where]], axis=1).ravel()
    for side in ("pulls", "pushes"):
        columns = np.array(getattr(step, side), dtype=np.int64).reshape(-1, len(Transfer._fields)).T
        lists |= {f"{side}_{part}": own for part, own in zip(Transfer._fields, columns, strict=True)}
    return lists


def _step(row: Mapping[str, Any]) -> TrainingStep:
    sparse: NDArray[np.int64] = np.array(row["windows"], dtype=np.int64).reshape(-1, 1 + len(WINDOW))
    windows: NDArray[np.int64] = np.zeros((len(row["ops"]), len(WINDOW)), dtype=np.int64)
    windows[sparse[:, 0]] = sparse[:, 1:]

    def transfers(side: str) -> tuple[Transfer, ...]:
        columns = (row[f"{side}_{part}"] for part in Transfer._fields)
        return tuple(Transfer(op, server, float(size)) for op, server, size in zip(*columns, strict=True))

    return TrainingStep(
        ops=tuple(row["ops"]),
        windows=windows,
        on_device=np.ones(len(row["ops"]), dtype=bool),
        pulls=transfers("pulls"),
        pushes=transfers("pushes"),
        **{name: np.array(row[name], dtype=np.float64) for name in _NUMBERS},
    )
