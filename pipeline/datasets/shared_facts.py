"""Metadata of a whole dataset. With it, a single graph is grouped like the graphs of the dataset."""

from __future__ import annotations

from typing import Any

from driple.contracts.formats.dataset import OP_FREQUENCY, SIZE_BATCHES
from driple.contracts.json_values import to_plain
from driple.pipeline.datasets.dataset_file import Dataset, Graph


def shared_metadata(result: Dataset) -> dict[str, Any]:
    """Frequencies of op types and the batches of `proportional` grouping; None if no graph has ops."""
    from driple.pipeline.graph.public import OpGraph, op_frequency, size_batches

    used = {row["graph"] for row in result.rows}
    ops = [graph for key, graph in sorted(result.graphs.items()) if key in used and "op_type" in graph]
    if not ops:
        return {OP_FREQUENCY: None, SIZE_BATCHES: None}
    graphs = [OpGraph(tuple(graph["op_type"]), graph["op_bytes"], graph["op_flops"], _edges(graph)) for graph in ops]
    return {
        OP_FREQUENCY: op_frequency(graphs),
        SIZE_BATCHES: to_plain(size_batches(len(graph.ops) for graph in graphs)),
    }


def _edges(graph: Graph) -> Any:
    import numpy as np

    return np.stack([graph["edge_src"], graph["edge_dst"]], axis=1).astype(np.int64)
