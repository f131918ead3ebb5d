"""The file of a dataset: the same rows, the same bytes; what cannot be read is refused and left alone."""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from driple.contracts.errors import BadInput
from driple.contracts.formats.dataset import COLUMNS, FINGERPRINT, GROUPS, LIST_NAMES, NETWORK_COLUMNS, OPS, TABLES
from driple.contracts.metrics import COLUMNS as TARGETS
from driple.pipeline.datasets import dataset_file as files
from driple.pipeline.datasets.dataset_file import (
    Dataset,
    Row,
    graph_key,
    put,
    read,
    to_bytes,
)

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SETTING = "cpu-p1w2-1g"


def op_graph(nodes: int, seed: int = 0) -> dict[str, Any]:
    numbers = np.random.default_rng(seed)
    flops = numbers.integers(0, 10**12, nodes).astype(float)
    flops[::3] = np.nan
    return {
        "op_type": [f"Op{kind}" for kind in numbers.integers(0, 9, nodes)],
        "op_bytes": numbers.integers(0, 2**52, nodes).astype(float),
        "op_flops": flops,
        "edge_src": np.arange(nodes - 1, dtype=np.int32),
        "edge_dst": np.arange(1, nodes, dtype=np.int32),
    }


def row(run: str, task: str | None, graph: str, **values: Any) -> Row:
    return {"setting": SETTING, "run_id": run, "task": task, "graph": graph, "flags": [], **values}


def sample() -> Dataset:
    a, b = op_graph(40, 1), op_graph(7, 2)
    groups = {
        "group_bytes": np.array([1.5, 2.0]),
        "group_size": np.array([3.0, 4.0]),
        "group_frequency": np.array([0.1, 0.2]),
        "edge_src": np.array([0], dtype=np.int32),
        "edge_dst": np.array([1], dtype=np.int32),
    }
    keys = [graph_key(OPS, a), graph_key(OPS, b), graph_key(GROUPS, groups)]
    rows = [
        row(f"run{r}", f"worker:{t}", keys[r % 2], gpu_burst_s=r / 7, flags=["x:1"])
        for r in range(3)
        for t in range(12)
    ]
    rows += [row("published-1", None, keys[2], net_tx_idle_s=0.1)]
    return Dataset(SETTING, rows, dict(zip(keys, (a, b, groups), strict=True)))


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    before = sample()
    path = tmp_path / "d.parquet"
    assert put(to_bytes(before, {"op_frequency": {"Conv2D": 1 / 3}}), path)
    after = read(path, SETTING)
    assert [r["task"] for r in after.rows[1:13]] == [f"worker:{t}" for t in range(12)]  # by number: 2 before 10
    assert [{k: v for k, v in r.items() if v is not None} for r in after.rows] == [
        {k: v for k, v in r.items() if v is not None} for r in sorted(before.rows, key=files._place)
    ]
    assert after.graphs.keys() == before.graphs.keys()
    for key, graph in before.graphs.items():
        assert after.graphs[key].keys() == graph.keys()
        for name, values in graph.items():
            assert np.array_equal(after.graphs[key][name], values, equal_nan=name == "op_flops")
        assert graph_key(GROUPS if "group_size" in graph else OPS, after.graphs[key]) == key


def test_the_same_rows_in_any_order_are_the_same_bytes(tmp_path: Path) -> None:
    one, two = sample(), sample()
    random.Random(1).shuffle(two.rows)
    two.graphs = dict(reversed(two.graphs.items()))
    two.graphs["nobody's"] = op_graph(5, 9)
    content = to_bytes(one, {"b": 1, "a": [1.5]})
    assert to_bytes(two, {"b": 1, "a": [1.5]}) == content
    path = tmp_path / "d.parquet"
    put(content, path)
    assert to_bytes(read(path, SETTING), {"b": 1, "a": [1.5]}) == content
    assert not put(content, path)  # stands there already


def test_a_graph_stands_once_and_every_row_names_it(tmp_path: Path) -> None:
    put(to_bytes(sample(), {}), tmp_path / "d.parquet")
    table = pq.read_table(tmp_path / "d.parquet")
    assert table.num_rows == 37
    assert table["graph"].null_count == 0
    assert table["edge_src"].null_count == 34
    assert table.column_names[-len(LIST_NAMES) :] == list(LIST_NAMES)


def test_columns_of_a_fingerprint_are_there_if_a_row_has_one(tmp_path: Path) -> None:
    names = [column.name for column in FINGERPRINT]
    path = tmp_path / "d.parquet"
    old = sample()
    put(to_bytes(old, {}), path)
    assert not set(names) & set(pq.read_schema(path).names)
    new = sample()
    new.rows[0] |= {"fingerprint_version": 1, "fingerprint_copy_bytes_per_s": 1.5e10}
    put(to_bytes(new, {}), path)
    assert [name for name in pq.read_schema(path).names if name in names] == [
        "fingerprint_version",
        "fingerprint_copy_bytes_per_s",
    ]
    found = [row.get("fingerprint_copy_bytes_per_s") for row in read(path, SETTING).rows]
    assert sorted(value for value in found if value is not None) == [1.5e10]


def test_start_up_times_are_there_if_a_row_has_one(tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    put(to_bytes(sample(), {}), path)
    assert not {"start_s", "started_by"} & set(pq.read_schema(path).names)
    new = sample()
    new.rows[0] |= {"start_s": 1.5, "started_by": "warm"}
    put(to_bytes(new, {}), path)
    rows = [row for row in read(path, SETTING).rows if row.get("start_s") is not None]
    assert [(row["start_s"], row["started_by"]) for row in rows] == [(1.5, "warm")]


def test_columns_are_declared_once_and_hold_the_targets() -> None:
    names = [column.name for column in COLUMNS]
    assert len(set(names)) == len(names)
    assert set(TARGETS) <= set(names)
    assert {column.type.removeprefix("list of ") for column in COLUMNS} == {"text", "int", "real"}


def test_what_is_no_number_is_null(tmp_path: Path) -> None:
    graph = op_graph(3)
    key = graph_key(OPS, graph)
    values = {"gpu_burst_s": math.nan, "gpu_idle_s": math.inf, "step_s": 0.0}
    put(to_bytes(Dataset(SETTING, [row("r", "ps:0", key, **values)], {key: graph}), {}), tmp_path / "d.parquet")
    (found,) = read(tmp_path / "d.parquet", SETTING).rows
    assert (found["gpu_burst_s"], found["gpu_idle_s"], found["step_s"]) == (None, None, 0.0)


def test_the_name_of_a_graph_is_what_it_says() -> None:
    graph = op_graph(20, 3)
    assert graph_key(OPS, graph) == graph_key(OPS, {**graph})
    for name in graph:
        other = {**graph, name: list(graph[name])}
        other[name][4] = "Other" if name == "op_type" else 17
        assert graph_key(OPS, other) != graph_key(OPS, graph), name
    assert graph_key(GROUPS, graph) != graph_key(OPS, graph)


def _edited(path: Path, **metadata: str) -> None:
    table = pq.read_table(path)
    changes = {f"driple.{key}": value for key, value in metadata.items()}
    kept = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
    pq.write_table(table.replace_schema_metadata({**kept, **changes}), path)


def _misnamed(path: Path) -> None:
    """A column name that is not UTF-8."""
    pq.write_table(pq.read_table(path), path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(b"batch_size", b"batch\xffsize"))


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "not a dataset that can be read"),
        (lambda path: path.write_bytes(b""), "not a dataset that can be read"),
        (lambda path: pq.write_table(pa.table({"a": [1]}), path), "not a dataset of driple"),
        (lambda path: _edited(path, schema_version="2"), "schema version '2', this release reads 1"),
        (
            lambda path: _edited(path, setting=json.dumps("v100-p1w2-pcie")),
            "holds 'v100-p1w2-pcie' and not cpu-p1w2-1g",
        ),
        (
            lambda path: pq.write_table(pq.read_table(path).drop_columns(["graph"]), path),
            "not a dataset that can be read",
        ),
        (_misnamed, "not a dataset that can be read"),
        (lambda path: _edited(path, setting="{"), "driple.setting is not valid JSON"),
        (_pipe, "not a regular file"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(spoil: Callable[[Path], object], reason: str, tmp_path: Path) -> None:
    path = tmp_path / "d.parquet"
    put(to_bytes(sample(), {}), path)
    spoil(path)
    with pytest.raises(BadInput) as error:
        read(path, SETTING)
    assert str(error.value).startswith(f"{path}: ")
    assert reason in str(error.value)
    assert "\n" not in str(error.value)


def test_the_document_says_what_the_columns_are(checkout: Path) -> None:
    text = (checkout / "docs/reference/file-formats.md").read_text()
    for title, columns in TABLES.items():
        if title != "Statistics":  # the same eleven for each resource
            rows = "\n".join(f"| `{column.name}` | {column.type} | {column.meaning} |" for column in columns)
            assert rows in text, title


def test_every_field_of_a_network_condition_has_a_column() -> None:
    """Datasets, reports and inspectors take the columns from the fields."""
    names = {column.name for columns in TABLES.values() for column in columns}
    assert set(NETWORK_COLUMNS) <= names
    first = {"network_rate_mbit": None, "network_delay_ms": 0.0, "network_loss_pct": 0.0}
    assert first.items() <= NETWORK_COLUMNS.items()
