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
    variable_bytes: NDArray[np.int64]
    extra_left_out: int
    """NoOps that a worker has only if there are several servers."""

    def graph(self, batch_size: int, setting: Setting, sharding: str) -> OpGraph:
        shard = Sharding(max(setting.servers, 1), sharding)
        servers = [shard.place(size) for size in self.variable_bytes.tolist()]
        worker = f"/job:worker/task:0/device:{'CPU' if setting.device == CPU else 'GPU'}:0"
        named = {ON_WORKER: worker, ON_HOST_CPU: "/job:worker/task:0/device:CPU:0"}
        named |= {variable: f"/job:ps/task:{server}" for variable, server in enumerate(servers)}
        own, sink = self.bytes.at(batch_size), ["NoOp"] * bool(len(self.sent))  # it takes all that servers take
        tensors = dict(zip(map(tuple, self.sent.tolist()), self.sent_bytes.at(batch_size).tolist(), strict=True))
        sent = np.stack([self.sent[:, 0], np.full(len(self.sent), len(self.ops))], axis=1)
        raw = RawGraph(
            names=[*map(str, range(len(self.ops))), *sink],
            ops=[*self.ops, *sink],
            devices=[*(named[place] for place in self.place.tolist()), *["/job:ps/task:0" for _ in sink]],
            bytes=np.append(own, np.zeros(len(sink))),
            sized=np.append(self.sized, np.ones(len(sink), dtype=bool)),
            flops=np.append(self.flops.at(batch_size), np.full(len(sink), np.nan)),
            edges=np.concatenate([self.edges, sent]),
            edge_outputs=np.concatenate([self.edge_outputs, self.sent[:, 1]]),
            tensor_bytes=lambda op, output: tensors.get((op, output), float(own[op])),
            task=TASK,
        )
        chosen = choose(raw, None)
        return replace(chosen, left_out=chosen.left_out + (self.extra_left_out if setting.servers > 1 else 0))


def stored_graph(workload: Workload, setting: Setting, folder: Path | None = None) -> OpGraph | None:
    """The graph of a zoo model without TensorFlow; None if it is not stored.

    Args:
        workload: stored are default dataset, size, width and optimiser, with any batch size, update and sharding.
        setting: any.
        folder: instead of the installed `zoo_graphs/`.
    """
    folder = installed_data(FOLDER) if folder is None else folder
    if folder is None or not is_default(workload):
        return None
    path = folder / f"{workload.model}.parquet"
    stored = read(path).get(workload.strategy) if path.is_file() else None
    return None if stored is None else stored.graph(workload.batch_size, setting, workload.sharding)


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
        variable_bytes=numbers("variable_bytes"),
        extra_left_out=table.column("extra_left_out")[0].as_py(),
    )
