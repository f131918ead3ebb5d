"""Small datasets for tests: a made-up zoo whose targets follow from its graphs, written as the pipeline writes them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from driple.contracts.formats.dataset import GROUPS, MEASURED, NETWORK_COLUMNS, OPS, PUBLISHED
from driple.contracts.json_values import to_plain
from driple.contracts.metrics import COLUMNS
from driple.inspector.data.dataset_rows import read_examples
from driple.inspector.data.examples import Examples
from driple.pipeline.datasets.dataset_file import (
    Dataset,
    Row,
    graph_key,
    put,
    to_bytes,
)
from driple.pipeline.graph.public import OpGraph, op_frequency, size_batches

SETTING = "cpu-p1w2-1g"
# By the rules of the pipeline: three families of the training side, one of each other side.
FAMILIES = {"vgg": "train", "resnet": "train", "inception": "train", "densenet": "val", "alexnet": "test"}
BLOCK = ("Conv2D", "FusedBatchNormV3", "Relu", "Conv2DBackpropFilter", "Conv2DBackpropInput", "ReluGrad")


def chain(blocks: int, scale: float = 1.0) -> OpGraph:
    """A chain of blocks of ops, with a shortcut over each block."""
    ops = ("Const", *BLOCK * blocks, "MatMul", "Sum")
    nodes = len(ops)
    sizes = scale * (1000.0 + 100.0 * np.arange(nodes))
    flops = np.array([scale * 1e6 * (2 + position % 3) if "Conv" in op else np.nan for position, op in enumerate(ops)])
    along = [(position, position + 1) for position in range(nodes - 1)]
    over = [(1 + 6 * block, 6 + 6 * block) for block in range(blocks)]
    return OpGraph(ops, sizes, flops, np.array(sorted(along + over), dtype=np.int64))


def lists_of(graph: OpGraph) -> dict[str, Any]:
    """The graph as the lists of a dataset."""
    return {
        "op_type": list(graph.ops),
        "op_bytes": graph.bytes,
        "op_flops": graph.flops,
        "edge_src": graph.edges[:, 0].astype(np.int32),
        "edge_dst": graph.edges[:, 1].astype(np.int32),
    }


def groups_of(nodes: int, seed: int) -> dict[str, Any]:
    """A graph as the authors published them, as the lists of a dataset."""
    numbers = np.random.default_rng(seed)
    source: Any = np.arange(nodes - 1, dtype=np.int32)
    return {
        "group_bytes": numbers.integers(1, 10**7, nodes).astype(float),
        "group_size": numbers.integers(1, 40, nodes).astype(float),
        "group_frequency": numbers.random(nodes),
        "edge_src": source,
        "edge_dst": source + 1,
    }


def zoo(
    families: Sequence[str] = tuple(FAMILIES),
    batches: Sequence[int] = (8, 16, 32),
    depths: Sequence[int] = (1, 2, 4),
    provenance: str = MEASURED,
) -> Dataset:
    """A dataset: for each family models of several depths at several batch sizes, two workers and a server each."""
    found = Dataset(SETTING)
    for number, family in enumerate(families):
        for depth in depths:
            for batch in batches:
                graph = chain(depth + number, batch / 8)
                lists = lists_of(graph)
                key = graph_key(OPS, lists)
                found.graphs[key] = lists
                for task in ("ps:0", "worker:0", "worker:1"):
                    found.rows.append(_row(found, family, depth, batch, task, graph, key, provenance))
    return found


def published(count: int = 12) -> Dataset:
    """A dataset as it is imported from the authors' files."""
    found = Dataset(SETTING)
    for number in range(count):
        side = ("train", "train", "val", "test")[number % 4]
        graph = groups_of(5 + number % 3, number)
        key = graph_key(GROUPS, graph)
        found.graphs[key] = graph
        found.rows.append(
            {
                "setting": SETTING,
                "run_id": f"published-{number:03d}",
                "provenance": PUBLISHED,
                "graph": key,
                "graph_kind": GROUPS,
                "flags": [],
                "split_random": side,
                **{column: float(graph["group_bytes"].sum()) * (1 + place) for place, column in enumerate(COLUMNS)},
            }
        )
    return found


def write(dataset: Dataset, folder: Path, change: Callable[[Row], None] | None = None, **metadata: Any) -> Path:
    """Writes `<folder>/<setting>.parquet`; `change` may spoil every row before."""
    if change is not None:
        for row in dataset.rows:
            change(row)
    graphs = [
        OpGraph(
            tuple(lists["op_type"]),
            lists["op_bytes"],
            lists["op_flops"],
            np.stack([lists["edge_src"], lists["edge_dst"]], axis=1).astype(np.int64),
        )
        for lists in dataset.graphs.values()
        if "op_type" in lists
    ]
    shared: dict[str, Any] = {"op_frequency": None, "size_batches": None}
    if graphs:
        batches = size_batches(len(graph.ops) for graph in graphs)
        shared = {"op_frequency": op_frequency(graphs), "size_batches": to_plain(batches)}
    path = folder / f"{SETTING}.parquet"
    folder.mkdir(parents=True, exist_ok=True)
    put(to_bytes(dataset, {**shared, **metadata}), path)
    return path


def examples(folder: Path, dataset: Dataset | None = None, role: str = "worker") -> Examples:
    """The dataset written, and read as an inspector does."""
    write(zoo() if dataset is None else dataset, folder)
    return read_examples(folder, SETTING, role)


def rewrite(path: Path, **changes: Any) -> None:
    """Writes a dataset again with other columns (a list of values), or without them (None), or with other metadata."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    metadata = dict(table.schema.metadata)
    for name, values in changes.items():
        if name.startswith("driple_"):
            metadata[name.replace("_", ".", 1).encode()] = (
                values if isinstance(values, bytes) else json.dumps(values).encode()
            )
            continue
        place = table.schema.get_field_index(name)
        if values is None:
            table = table.remove_column(place)
        else:
            table = table.set_column(place, name, pa.array(values, type=table.schema.field(name).type))
    pq.write_table(table.replace_schema_metadata(metadata), path)


def _row(found: Dataset, family: str, depth: int, batch: int, task: str, graph: OpGraph, key: str, source: str) -> Row:
    role, _, index = task.partition(":")
    work = float(np.nansum(graph.flops)) / 1e9
    traffic = float(graph.bytes.sum()) / 1e6
    near = 1 + 0.02 * int(index)  # workers are not quite alike
    values = {
        "gpu_burst_s": work * near,
        "gpu_idle_s": traffic * near,
        "gpu_burst_pct": 50.0 + depth,
        "net_tx_burst_s": traffic / 2 * near,
        "net_tx_idle_s": work + traffic / 2,
        "net_tx_burst_bytes_per_s": 1e8 * near,
        "net_rx_burst_s": traffic / 3 * near,
        "net_rx_idle_s": work + traffic / 1.5,
        "net_rx_burst_bytes_per_s": 1.1e8 * near,
    }
    side = FAMILIES.get(family, "train")
    return {
        "setting": SETTING,
        "model": f"{family}{depth}",
        "family": family,
        "dataset": "imagenet",
        "batch_size": batch,
        "optimiser": "momentum",
        "update": "sync",
        "image_size": 224,
        "width": 1.0,
        "strategy": "ps",
        "sharding": "balanced",
        "framework": "tensorflow",
        **NETWORK_COLUMNS,
        "threads": 1,
        "task": task,
        "role": role,
        "run_id": f"{SETTING}-{family}{depth}-b{batch}",
        "provenance": source,
        "graph": key,
        "graph_kind": OPS,
        "nodes": len(graph.ops),
        "edges": len(graph.edges),
        "bytes_received": float(graph.bytes.sum()),
        "bytes_sent": float(graph.bytes.sum()) / 2,
        "bytes_busiest": float(graph.bytes.sum()) / 3,
        "flags": [],
        "split_architecture": side,
        "split_random": ("train", "val", "test")[batch // 8 % 3 if batch < 32 else 0],
        **({} if role == "ps" else values),
        **({name: values[name] for name in values if name.startswith("net")} if role == "ps" else {}),
    }
