"""Reads the graph files of run directories (`graph/<role>.parquet`)."""

from __future__ import annotations

import importlib
import json
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.formats.graph import DATA, check_graph_file
from driple.contracts.setting import Setting
from driple.pipeline.graph.output_sizes import output_bytes
from driple.pipeline.graph.raw_graph import RawGraph
from driple.pipeline.graph.training_step import OpDetails, op_details


def read(content: bytes, batch_size: int | None) -> RawGraph:
    """Reads a file. Unknown first dimensions count as `batch_size`, or as the batch size of the file's workload.

    Raises BadInput for another format or version, a file that is cut short, or not exactly one graph.
    """
    arrow = importlib.import_module("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    try:
        table = parquet.ParquetFile(arrow.BufferReader(content)).read()
    except (arrow.ArrowException, OSError, ValueError):  # pyarrow's own message may quote bytes that are not text
        raise BadInput("not a Parquet file (cut short?)") from None
    check_graph_file(table.schema.metadata or {}, table.column_names)
    if table.num_rows != 1:
        raise BadInput(f"{table.num_rows} graphs in a file that should have one")
    try:
        return _raw(table, batch_size)
    except (arrow.ArrowException, KeyError, TypeError, ValueError, AttributeError):
        raise BadInput("a graph file that lacks columns or has values of the wrong type") from None


def _raw(table: Any, batch_size: int | None) -> RawGraph:
    nodes = table.column("nodes").combine_chunks().flatten()
    edges = table.column("edges").combine_chunks().flatten()
    needed = [nodes.field(name) for name in ("name", "op", "device")] + [edges.field(name) for name in ("src", "dst")]
    if any(column.null_count for column in needed):
        raise ValueError("a null where a value must be")
    sizes = nodes.field("output_bytes").to_numpy(zero_copy_only=False).astype(np.float64)
    sized = ~np.isnan(sizes)
    batch_size = batch_size or _batch_size(table.column("workload")[0].as_py())
    shapes, dtypes = nodes.field("shapes"), nodes.field("dtypes")
    for position in np.flatnonzero(~sized).tolist():
        sizes[position], sized[position] = output_bytes(shapes[position].as_py(), dtypes[position].as_py(), batch_size)
    ends = [edges.field(end).to_numpy(zero_copy_only=False).astype(np.int64) for end in ("src", "dst")]
    data = np.array([kind == DATA for kind in edges.field("kind").to_pylist()], dtype=bool)

    def tensor_bytes(op: int, output: int) -> float:
        return output_bytes(
            shapes[op].as_py()[output : output + 1], dtypes[op].as_py()[output : output + 1], batch_size
        )[0]

    names, ops = nodes.field("name").to_pylist(), nodes.field("op").to_pylist()
    outputs = edges.field("output").fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)[data]

    def details() -> OpDetails:
        return op_details(
            names, ops, shapes.to_pylist(), dtypes.to_pylist(), np.stack(ends, axis=1)[data], outputs, batch_size
        )

    return RawGraph(
        names=names,
        ops=ops,
        devices=nodes.field("device").to_pylist(),
        bytes=sizes,
        sized=sized,
        flops=nodes.field("flops").to_numpy(zero_copy_only=False).astype(np.float64),
        edges=np.stack(ends, axis=1)[data],
        edge_outputs=outputs,
        tensor_bytes=tensor_bytes,
        task=table.column("task")[0].as_py(),
        batch_size=batch_size,
        all_reduce=_without_servers(table.column("setting")[0].as_py()),
        details=details,
    )


def _without_servers(setting: str | None) -> bool:
    return setting is not None and Setting.parse(setting).servers == 0


def _batch_size(workload: str | None) -> int | None:
    found = json.loads(workload).get("batch_size") if workload else None
    return found if isinstance(found, int) and found > 0 else None
