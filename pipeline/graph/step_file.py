"""Training steps of a dataset's workloads in one compact Parquet file: what a simulation needs of graphs.

Steps are of workers whose ops are all on their device, as on a processor. contracts/formats/training_steps.py defines
the columns.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driple.contracts.errors import BadInput
from driple.contracts.formats.training_steps import KEY_COLUMNS, LIST_COLUMNS, METADATA
from driple.contracts.run_dir import replacing
from driple.contracts.run_spec import Workload
from driple.pipeline.graph.training_step import WINDOW, TrainingStep, Transfer

StepKey = tuple[str, str, int, float, int, int, str, int, str, str]
_NUMBERS = ("flops", "read_bytes", "written_bytes", "executions")
_TRANSFERS = ("pulls", "pushes", "reduced")


def step_key(workload: Workload, servers: int) -> StepKey:
    """What a step depends on: the names of KEY_COLUMNS. An unknown size is 0; with one server there is one sharding."""
    sizes = (workload.image_size or 0, workload.sequence_length or 0)
    sharding = workload.sharding if servers > 1 else ""
    runtime = (workload.strategy, workload.framework)
    return (workload.model, workload.dataset, workload.batch_size, workload.width, *sizes, sharding, servers, *runtime)


def write_steps(steps: Mapping[StepKey, TrainingStep], path: Path) -> None:
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


def read_steps(path: Path) -> Iterator[tuple[StepKey, TrainingStep]]:
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
        yield tuple(row[name] for name in KEY_COLUMNS), _step(row)


def _lists(step: TrainingStep) -> dict[str, Any]:
    where = np.flatnonzero(step.windows.any(axis=1))
    lists: dict[str, Any] = {"ops": list(step.ops)}
    lists |= {name: getattr(step, name).astype(np.int64) for name in _NUMBERS}
    lists["windows"] = np.concatenate([where[:, None], step.windows[where]], axis=1).ravel()
    for side in _TRANSFERS:
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
        reduced=transfers("reduced"),
        **{name: np.array(row[name], dtype=np.float64) for name in _NUMBERS},
    )
