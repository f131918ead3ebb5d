"""Writes training graphs in the format of contracts/formats/graph.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput, DripleError
from driple.contracts.formats import graph as graph_format
from driple.contracts.graph_makers import TENSORFLOW
from driple.contracts.run_dir import replacing


@dataclass(frozen=True)
class Node:
    """One op."""

    name: str
    op: str
    device: str
    shapes: list[list[int] | None]
    dtypes: list[str]
    output_bytes: int | None
    flops: int | None


@dataclass(frozen=True)
class Edge:
    """A tensor, or an order of execution."""

    src: int
    dst: int
    kind: str
    output: int | None


@dataclass(frozen=True)
class Graph:
    """A graph and its origin: one row of the file."""

    source: str
    setting: str | None
    task: str | None
    workload: str | None
    tensorflow: str | None
    nodes: list[Node]
    edges: list[Edge]
    framework: str = TENSORFLOW
    framework_version: str | None = None


def write(graph: Graph, path: Path) -> None:
    """Writes a file atomically."""
    pa, pq = _arrow()

    def arrow_type(text: str) -> Any:
        structs = {"node": graph_format.NODE_COLUMNS, "edge": graph_format.EDGE_COLUMNS}
        if text.startswith("list<"):
            return pa.list_(arrow_type(text[5:-1]))
        return pa.struct(fields(structs[text])) if text in structs else getattr(pa, text)()

    def fields(columns: Mapping[str, str]) -> list[tuple[str, Any]]:
        return [(name, arrow_type(text)) for name, text in columns.items()]

    columns = {**graph_format.GRAPH_COLUMNS, **graph_format.LATER_COLUMNS}
    schema = pa.schema(fields(columns), metadata=graph_format.METADATA)
    row = {name: getattr(graph, name) for name in columns}
    row["nodes"] = [vars(item) for item in graph.nodes]
    row["edges"] = [vars(item) for item in graph.edges]
    try:
        with replacing(path, "wb") as stream:
            pq.write_table(pa.Table.from_pylist([row], schema=schema), stream, compression="zstd")
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or error}") from None


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise DripleError("writing a graph needs pyarrow: pip install pyarrow") from None
    return pyarrow, pyarrow.parquet
