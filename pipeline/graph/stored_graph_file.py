"""Writes a stored zoo graph as the graph file of a run directory, for a run that no TensorFlow built: a simulated one.

Sizes, FLOPs, devices and edges are those of the real graph. Names are numbers, and an output is a vector of its bytes,
because stored graphs have no shapes.
"""

from __future__ import annotations

import importlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driple.contracts.formats import graph as graph_format
from driple.contracts.graph_makers import TENSORFLOW
from driple.contracts.json_values import to_plain
from driple.contracts.run_dir import replacing
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.pipeline.graph.stored_graph import TASK, find_stored

BYTES = "uint8"


def write_stored_graph(workload: Workload, setting: Setting, path: Path) -> bool:
    """Writes the graph of a zoo model; False if it is not stored. The optimiser does not change the worker's ops."""
    stored = find_stored(replace(workload, optimiser=Workload.optimiser))
    if stored is None:
        return False
    raw = stored.raw(workload.batch_size, setting, workload.sharding)
    outputs: NDArray[np.int64] = np.zeros(len(raw.ops), dtype=np.int64)
    np.maximum.at(outputs, raw.edges[:, 0], raw.edge_outputs + 1)
    nodes = [
        {
            "name": name,
            "op": op,
            "device": device,
            "shapes": [[int(raw.tensor_bytes(number, output))] for output in range(count)],
            "dtypes": [BYTES] * count,
            "output_bytes": int(size) if sized else None,
            "flops": None if np.isnan(flops) else int(flops),
        }
        for number, (name, op, device, size, sized, flops, count) in enumerate(
            zip(raw.names, raw.ops, raw.devices, raw.bytes, raw.sized, raw.flops, outputs.tolist(), strict=True)
        )
    ]
    edges = [
        {"src": source, "dst": target, "kind": graph_format.DATA, "output": output}
        for (source, target), output in zip(raw.edges.tolist(), raw.edge_outputs.tolist(), strict=True)
    ]
    text = json.dumps(to_plain(workload), sort_keys=True)
    row = {"source": workload.model, "setting": str(setting), "task": TASK, "workload": text, "tensorflow": None}
    _write({**row, "nodes": nodes, "edges": edges, "framework": TENSORFLOW, "framework_version": None}, path)
    return True


def _write(row: dict[str, Any], path: Path) -> None:
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    structs = {"node": graph_format.NODE_COLUMNS, "edge": graph_format.EDGE_COLUMNS}

    def arrow_type(text: str) -> Any:
        if text.startswith("list<"):
            return arrow.list_(arrow_type(text[5:-1]))
        if text in structs:
            return arrow.struct([(name, arrow_type(kind)) for name, kind in structs[text].items()])
        return getattr(arrow, text)()

    declared = {**graph_format.GRAPH_COLUMNS, **graph_format.LATER_COLUMNS}
    columns = [(name, arrow_type(kind)) for name, kind in declared.items()]
    schema = arrow.schema(columns, metadata=graph_format.METADATA)
    with replacing(path, "wb") as stream:
        parquet.write_table(arrow.Table.from_pylist([row], schema=schema), stream, compression="zstd")
