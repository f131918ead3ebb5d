"""Stored graphs of the zoo: `zoo_graphs/<model>.parquet`, from which predictions need no TensorFlow.

A file has a row per strategy, for the default dataset, size, width and optimiser of the model. It holds for every batch
size, number of servers and workers, sharding, update mode and device kind, because it stores what these change:

- Bytes and FLOPs of an op are affine in the batch size: `base + per_example * batch_size`, exactly.
- `variable_bytes` are the variables in the order of creation. From them follows the server of each.
- `place` is -1 for an op on the worker's device, -2 for one on its host's CPU, else the variable that the op reads.

`scripts/zoo-graphs` makes the files and compares them with graphs that TensorFlow built.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driple.contracts.errors import BadInput
from driple.contracts.formats.zoo_graph import FOLDER, METADATA
from driple.contracts.installed_data import installed_data
from driple.contracts.run_spec import Workload
from driple.contracts.setting import CPU, Setting
from driple.contracts.sharding import Sharding
from driple.contracts.zoo import DATASETS, MAX_BATCH, MODELS, ordinary_size
from driple.pipeline.graph.op_graph import OpGraph
from driple.pipeline.graph.raw_graph import RawGraph, choose
from driple.pipeline.graph.training_step import WINDOW, OpDetails, TrainingStep, training_step

TASK = "worker:0"
ON_WORKER = -1
ON_HOST_CPU = -2


@dataclass(frozen=True, eq=False)
class Affine:
    """Values that are affine in the batch size."""

    base: NDArray[np.float64]
    per_example: NDArray[np.float64]

    def at(self, batch_size: int) -> NDArray[np.float64]:
        return self.base + self.per_example * batch_size


@dataclass(frozen=True, eq=False)
class StoredGraph:
    """One row of a file."""

    strategy: str
    ops: tuple[str, ...]
    """Worker's ops, and the servers' ops whose outputs the worker takes."""
    place: NDArray[np.int64]
    sized: NDArray[np.bool_]
    bytes: Affine
    flops: Affine
    """NaN where there is no formula."""
    edges: NDArray[np.int64]
    edge_outputs: NDArray[np.int64]
    sent: NDArray[np.int64]
    """[N, 2]: op and output of each tensor that the worker sends to servers."""
    sent_bytes: Affine
    sent_variable: NDArray[np.int64]
    """The variable beside which each sent tensor is taken; -1 for the first server."""
    variable_bytes: NDArray[np.int64]
    extra_left_out: int
    """NoOps that a worker has only if there are several servers."""
    read_bytes: Affine
    """Bytes of the distinct tensors that each op takes."""
    windows: NDArray[np.int64]
    """[W, 7]: op and window (training_step.py, WINDOW) of each convolution of images."""
    looped: NDArray[np.int64]
    """Ops that are in a while loop."""

    def graph(self, batch_size: int, setting: Setting, sharding: str) -> OpGraph:
        chosen = choose(self.raw(batch_size, setting, sharding), None)
        return replace(chosen, left_out=chosen.left_out + (self.extra_left_out if setting.servers > 1 else 0))

    def raw(self, batch_size: int, setting: Setting, sharding: str) -> RawGraph:
        """All ops of the worker. What servers take goes to one op of each of them."""
        shard = Sharding(max(setting.servers, 1), sharding)
        servers = [shard.place(size) for size in self.variable_bytes.tolist()]
        worker = f"/job:worker/task:0/device:{'CPU' if setting.device == CPU else 'GPU'}:0"
        named = {ON_WORKER: worker, ON_HOST_CPU: "/job:worker/task:0/device:CPU:0"}
        named |= {variable: f"/job:ps/task:{server}" for variable, server in enumerate(servers)}
        own = self.bytes.at(batch_size)
        sinks = max(setting.servers, 1) if len(self.sent) else 0  # one per server: it takes all that the server takes
        tensors = dict(zip(map(tuple, self.sent.tolist()), self.sent_bytes.at(batch_size).tolist(), strict=True))
        takers = len(self.ops) + np.array([*servers, 0], dtype=np.int64)[self.sent_variable]
        sent = np.stack([self.sent[:, 0], takers], axis=1)
        return RawGraph(
            names=[*map(str, range(len(self.ops) + sinks))],
            ops=[*self.ops, *["NoOp"] * sinks],
            devices=[
                *(named[place] for place in self.place.tolist()),
                *(f"/job:ps/task:{server}" for server in range(sinks)),
            ],
            bytes=np.append(own, np.zeros(sinks)),
            sized=np.append(self.sized, np.ones(sinks, dtype=bool)),
            flops=np.append(self.flops.at(batch_size), np.full(sinks, np.nan)),
            edges=np.concatenate([self.edges, sent]),
            edge_outputs=np.concatenate([self.edge_outputs, self.sent[:, 1]]),
            tensor_bytes=lambda op, output: tensors.get((op, output), float(own[op])),
            task=TASK,
            all_reduce=setting.servers == 0,
            batch_size=batch_size,
            details=lambda: self._details(batch_size, sinks),
        )

    def _details(self, batch_size: int, sinks: int) -> OpDetails:
        nodes = len(self.ops) + sinks
        windows: NDArray[np.int64] = np.zeros((nodes, len(WINDOW)), dtype=np.int64)
        windows[self.windows[:, 0]] = self.windows[:, 1:]
        looped: NDArray[np.bool_] = np.zeros(nodes, dtype=bool)
        looped[self.looped] = True
        return OpDetails(np.append(self.read_bytes.at(batch_size), np.zeros(sinks)), windows, looped)


def stored_graph(workload: Workload, setting: Setting, folder: Path | None = None) -> OpGraph | None:
    """The graph of a zoo model without TensorFlow; None if it is not stored.

    Args:
        workload: stored are default dataset, size, width and optimiser, with any batch size, update and sharding.
        setting: any.
        folder: instead of the installed `zoo_graphs/`.
    """
    stored = find_stored(workload, folder)
    return None if stored is None else stored.graph(workload.batch_size, setting, workload.sharding)


def stored_step(workload: Workload, setting: Setting, folder: Path | None = None) -> TrainingStep | None:
    """The training step of a zoo model without TensorFlow, for any optimiser; None if it is not stored.

    With parameter servers the worker's ops do not depend on the optimiser: servers apply the updates.
    """
    stored = find_stored(replace(workload, optimiser=Workload.optimiser), folder)
    if stored is None:
        return None
    return training_step(stored.raw(workload.batch_size, setting, workload.sharding), workload.sequence_length or 1)


def find_stored(workload: Workload, folder: Path | None = None) -> StoredGraph | None:
    """The stored graph of a workload; None if it is not stored."""
    folder = installed_data(FOLDER) if folder is None else folder
    if folder is None or not is_default(workload):
        return None
    path = folder / f"{workload.model}.parquet"
    return _read_once(path, path.stat().st_mtime_ns).get(workload.strategy) if path.is_file() else None


@lru_cache(maxsize=64)
def _read_once(path: Path, modified_ns: int) -> dict[str, StoredGraph]:
    """A sweep over batch sizes and settings reads each file once."""
    return read(path)


def is_default(workload: Workload) -> bool:
    """Whether a workload has the dataset, size, width and optimiser for which graphs are stored."""
    model = MODELS.get(workload.model)
    if model is None or workload.dataset != model.datasets[0] or not 1 <= workload.batch_size <= MAX_BATCH:
        return False
    default = Workload(model.name, model.datasets[0], workload.batch_size)
    size = workload.image_size or workload.sequence_length
    return (workload.width, workload.optimiser, workload.framework, size) == (
        *(default.width, default.optimiser, default.framework),
        ordinary_size(model, DATASETS[model.datasets[0]]),
    )


def read(path: Path) -> dict[str, StoredGraph]:
    """The rows of a file by strategy. Raises BadInput if the file cannot be read or is not of this release."""
    arrow = importlib.import_module("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    try:
        table = parquet.read_table(path)
        if {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()} != METADATA:
            raise ValueError("another format or version")
        rows = [_row(table.slice(number, 1)) for number in range(table.num_rows)]
    except (arrow.ArrowException, OSError, KeyError, ValueError):
        raise BadInput(f"{path}: not a stored graph of this release") from None
    return {row.strategy: row for row in rows}


def _row(table: Any) -> StoredGraph:
    def items(name: str) -> Any:
        return table.column(name).combine_chunks().flatten()

    def numbers(name: str) -> NDArray[np.int64]:
        return np.asarray(items(name).to_numpy(zero_copy_only=False), dtype=np.int64)

    def affine(name: str) -> Affine:
        parts = (items(f"{name}_{part}").to_numpy(zero_copy_only=False) for part in ("base", "per_example"))
        return Affine(*(part.astype(np.float64) for part in parts))

    return StoredGraph(
        strategy=table.column("strategy")[0].as_py(),
        ops=tuple(items("ops").to_pylist()),
        place=numbers("place"),
        sized=items("sized").to_numpy(zero_copy_only=False).astype(bool),
        bytes=affine("bytes"),
        flops=affine("flops"),
        edges=np.stack([numbers("src"), numbers("dst")], axis=1),
        edge_outputs=numbers("output"),
        sent=np.stack([numbers("sent_op"), numbers("sent_output")], axis=1),
        sent_bytes=affine("sent"),
        sent_variable=numbers("sent_variable"),
        variable_bytes=numbers("variable_bytes"),
        extra_left_out=table.column("extra_left_out")[0].as_py(),
        read_bytes=affine("read"),
        windows=numbers("windows").reshape(-1, 1 + len(WINDOW)),
        looped=numbers("looped"),
    )
