"""The file of a graph, without TensorFlow."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from driple.contracts.errors import BadInput, DripleError
from driple.contracts.formats.graph import EDGE_COLUMNS, GRAPH_COLUMNS, LATER_COLUMNS, NODE_COLUMNS
from driple.pipeline.graph.public import read_graph
from driple.workloads.graphs import graph_writer
from driple.workloads.graphs.graph_writer import Edge, Graph, Node

GRAPH = Graph(
    source="tiny",
    setting="cpu-p1w1-1g",
    task="worker:0",
    workload="{}",
    tensorflow="2",
    nodes=[
        Node("x", "Const", "/job:worker", [[2, 3]], ["float32"], 24, None),
        Node("y", "Unknown", "", [None, [-1, 2]], ["float32", "int64"], None, 12),
        Node("z", "NoOp", "", [], [], 0, None),
    ],
    edges=[Edge(0, 1, "data", 0), Edge(1, 2, "control", None)],
)


def test_a_graph_survives_its_file(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    graph_writer.write(GRAPH, tmp_path / "g.parquet")
    table = pq.read_table(tmp_path / "g.parquet")
    (row,) = table.to_pylist()
    assert Graph(
        **{
            **row,
            "nodes": [Node(**node) for node in row["nodes"]],
            "edges": [Edge(**edge) for edge in row["edges"]],
        }
    ) == (GRAPH)
    assert table.schema.metadata == {b"driple.schema": b"graph", b"driple.schema_version": b"1"}
    assert table.column_names == [*GRAPH_COLUMNS, *LATER_COLUMNS]
    assert list(row["nodes"][0]) == list(NODE_COLUMNS)
    assert list(row["edges"][0]) == list(EDGE_COLUMNS)


def test_the_pipeline_reads_a_graph_file(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    graph_writer.write(GRAPH, tmp_path / "g.parquet")
    graph = read_graph(tmp_path / "g.parquet", device="/job:worker")
    assert (graph.ops, graph.bytes.tolist()) == (("Const",), [24.0])


def test_a_host_without_pyarrow_is_told_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(DripleError, match="pip install pyarrow"):
        graph_writer.write(GRAPH, tmp_path / "g.parquet")
    assert not (tmp_path / "g.parquet").exists()


def test_a_folder_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    with pytest.raises(BadInput, match="No such file"):
        graph_writer.write(GRAPH, tmp_path / "none" / "g.parquet")
