"""Builds the graphs of a dataset from the lists that store them, and checks every list."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput, shown
from driple.contracts.formats.dataset import EDGE_LISTS, GROUPS, LIST_NAMES, OPS
from driple.inspector.data.examples import MOST, Graph, PublishedGraph
from driple.pipeline.graph.public import FEATURES, OpGraph

_FEATURE_LISTS = tuple(
    {"frequency": "group_frequency", "bytes": "group_bytes", "ops": "group_size"}[f] for f in FEATURES
)


def read_graphs(table: Any, wanted: set[str | None]) -> dict[str, Graph]:
    """The wanted graphs by key, from the columns `graph`, `graph_kind` and LIST_NAMES of all rows.

    Raises:
        BadInput: a row has no graph (None in `wanted`), or a graph is missing or damaged.
    """
    import pyarrow.compute as pc

    if None in wanted:
        raise BadInput("a row without a graph; rebuild it (driple-build-dataset --rebuild)")
    table = table.filter(pc.is_valid(table["edge_src"]))
    found: dict[str, Graph] = {}
    for position, (key, kind) in enumerate(
        zip(table["graph"].to_pylist(), table["graph_kind"].to_pylist(), strict=True)
    ):
        if key not in wanted or key in found:
            continue
        try:
            found[key] = _graph(kind, {name: table[name][position] for name in LIST_NAMES})
        except BadInput as error:
            raise BadInput(f"graph {key[:12]}: {error}; rebuild it (driple-build-dataset --rebuild)") from None
    missing = sorted(str(key) for key in wanted - set(found))
    if missing:
        raise BadInput(f"graph {missing[0][:12]} is named by a row and missing; rebuild it (--rebuild)")
    return found


def _graph(kind: str, cells: Mapping[str, Any]) -> Graph:
    ends = [_numbers(cells, name, np.int64) for name in (column.name for column in EDGE_LISTS)]
    if ends[0].shape != ends[1].shape:
        raise BadInput(f"{len(ends[0])} beginnings of edges and {len(ends[1])} ends")
    edges = np.stack(ends, axis=1)
    if kind == OPS:
        try:
            types = cells["op_type"].as_py()
        except UnicodeDecodeError:
            raise BadInput("an op type that is not text") from None
        if not types or any(op is None for op in types):
            raise BadInput("ops without a type")
        ops = tuple(sys.intern(op) for op in types)
        graph = OpGraph(ops, _numbers(cells, "op_bytes"), _numbers(cells, "op_flops"), edges)
        if not (np.isfinite(graph.bytes).all() and (graph.bytes >= 0).all()):
            raise BadInput("the size of an op is not a number, or negative")
        if np.isinf(graph.flops).any() or (graph.flops < 0).any():
            raise BadInput("the FLOPs of an op are infinite, or negative")
        for what, amounts in (("size", graph.bytes), ("FLOPs", np.nan_to_num(graph.flops))):
            if amounts.max() > MOST:
                raise BadInput(f"{what} of an op: {amounts.max():g}; expected at most {MOST:g}")
        return graph
    if kind != GROUPS:
        raise BadInput(f"of kind {shown(kind)}: expected {OPS} or {GROUPS}")
    columns = [_numbers(cells, name) for name in _FEATURE_LISTS]
    if len({len(column) for column in columns}) > 1:
        raise BadInput("its features have different numbers of groups")
    features = np.stack(columns, axis=1)
    if not np.isfinite(features).all():
        raise BadInput("a feature of a group is not a number")
    return PublishedGraph(features, edges)


def _numbers(cells: Mapping[str, Any], name: str, kind: Any = np.float64) -> Any:
    cell = cells[name]
    if not cell.is_valid:
        raise BadInput(f"{name} is null")
    values = cell.values
    if values.null_count:
        raise BadInput(f"{name} has a null")
    return np.asarray(values.to_numpy(zero_copy_only=False), dtype=kind)
