"""What all rows of a dataset share: by it a graph that comes alone is grouped as those of the dataset were."""

from __future__ import annotations

from typing import Any

from driple.contracts.json_values import to_plain
from driple.pipeline.datasets.dataset_file import Dataset, Graph


def shared_metadata(result: Dataset) -> dict[str, Any]:
    """Frequencies of op types, and the batches of `proportional` grouping; null for a dataset without graphs of ops."""
    from driple.pipeline.graph.public import OpGraph, op_frequency, size_batches

    used = {row["graph"] for row in result.rows}
    ops = [graph for key, graph in sorted(result.graphs.items()) if key in used and "op_type" in graph]
    if not ops:
        return {"op_frequency": None, "size_batches": None}
    graphs = [OpGraph(tuple(graph["op_type"]), graph["op_bytes"], graph["op_flops"], _edges(graph)) for graph in ops]
    return {
        "op_frequency": op_frequency(graphs),
        "size_batches": to_plain(size_batches(len(graph.ops) for graph in graphs)),
    }


def _edges(graph: Graph) -> Any:
    import numpy as np

    return np.stack([graph["edge_src"], graph["edge_dst"]], axis=1).astype(np.int64)
