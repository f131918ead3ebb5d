"""Reads and writes datasets. contracts/formats/dataset.py defines the columns and the metadata.

The same rows give the same bytes: rows are sorted, the writer's options are fixed, and the file holds nothing about
the build itself (time, machine, order of work).
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput, DripleError
from driple.contracts.formats import dataset as dataset_format
from driple.contracts.formats.dataset import ABSENT_IF_NULL, COLUMNS, LIST_NAMES, LISTS, ROW_COLUMNS, Column
from driple.contracts.json_values import to_plain
from driple.contracts.run_dir import replacing
from driple.contracts.setting import Setting

Row = dict[str, Any]
Graph = Mapping[str, Any]
"""The list columns of one graph: numpy arrays, and a list of texts for `op_type`."""

_REALS = {column.name for column in COLUMNS if column.type == "real"}
_GROUP_ROWS = 1024


@dataclass
class Dataset:
    """All rows of a setting, and the graphs they name."""

    setting: str
    rows: list[Row] = field(default_factory=list)
    graphs: dict[str, Graph] = field(default_factory=dict)

    def runs(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            found.setdefault(row["run_id"], []).append(row)
        return found


def graph_key(kind: str, graph: Graph) -> str:
    """A hash of the graph's content. It does not depend on the file that the graph came from."""
    import numpy as np

    digest = hashlib.sha256(kind.encode())
    for column in LISTS:
        values = graph.get(column.name)
        if values is None:
            continue
        digest.update(f"\0{column.name}:{len(values)}\0".encode())
        if column.value_type == "text":
            digest.update("\0".join(values).encode())
        else:
            digest.update(
                np.ascontiguousarray(values, dtype={"real": "<f8", "int": "<i4"}[column.value_type]).tobytes()
            )
    return digest.hexdigest()


def to_bytes(dataset: Dataset, shared: Mapping[str, Any]) -> bytes:
    """The whole file: rows in any order, the graphs that they name, and metadata that holds for all rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = sorted(dataset.rows, key=_place)
    firsts = _firsts(rows)
    columns = _columns_of(rows)
    fields = [(column.name, _arrow_type(column)) for column in (*columns, *LISTS)]
    schema = pa.schema(fields, metadata=dataset_format.write_metadata(dataset.setting, shared))
    edges = {_leaf(column): "DELTA_BINARY_PACKED" for column in dataset_format.EDGE_LISTS}
    stream = pa.BufferOutputStream()
    with pq.ParquetWriter(
        stream,
        schema,
        version="2.6",
        data_page_version="1.0",
        compression="zstd",
        compression_level=9,
        use_dictionary=[_leaf(column) for column in (*columns, *LISTS) if _leaf(column) not in edges],
        column_encoding=edges,
        write_statistics=False,
    ) as writer:
        # Write in parts: the lists of all graphs of a large dataset at once would dominate the memory of a build.
        for start in range(0, len(rows), _GROUP_ROWS):
            part = slice(start, start + _GROUP_ROWS)
            graphs = [
                dataset.graphs[row["graph"]] if first else {}
                for row, first in zip(rows[part], firsts[part], strict=True)
            ]
            writer.write_table(pa.table([*_row_arrays(rows[part], columns), *_list_arrays(graphs)], schema=schema))
    return bytes(stream.getvalue())


def check(rows: Sequence[Row]) -> None:
    """Raises ValueError if a column cannot hold a value, so that only the run with the value is set aside."""
    import pyarrow as pa

    try:
        list(_row_arrays(rows, ROW_COLUMNS))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"a value that no column can hold: {one_line(error)}") from None


def put(content: bytes, path: Path) -> bool:
    """Writes the file atomically; returns False if it has this content already."""
    try:
        if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
            return False
        path.parent.mkdir(exist_ok=True)
        with replacing(path, "wb") as stream:
            stream.write(content)
    except OSError as error:
        raise DripleError(f"{path}: cannot be written: {error.strerror or error}") from None
    return True


def read(path: Path, setting: str) -> Dataset:
    """Reads a dataset. Raises BadInput if it is not a readable dataset of this schema version and setting."""
    with _opened(path) as file:
        dataset_format.check_metadata(file.schema_arrow.metadata or {}, setting)
        rows: list[Row] = file.read(columns=[column.name for column in ROW_COLUMNS]).to_pylist()
        for row in rows:
            dataset_format.fill_later_columns(row)
        graphs = _read_graphs(file.read(columns=["graph", *LIST_NAMES]))
    return Dataset(setting, rows, graphs)


def about(path: Path) -> tuple[str, set[str]]:
    """The setting of a dataset, and the provenances of its rows. Raises BadInput like `read`."""
    with _opened(path) as file:
        metadata = file.schema_arrow.metadata or {}
        setting = str(dataset_format.metadata_value(metadata, dataset_format.SETTING))
        dataset_format.check_metadata(metadata, setting)
        setting = str(Setting.parse(setting))  # it becomes the name of a file
        return setting, set(file.read(columns=["provenance"])["provenance"].to_pylist())


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """An open Parquet file. Faults in it become BadInput with the path in front."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    remedy = "move it away and rebuild the dataset"
    if path.exists() and not path.is_file():
        raise BadInput(f"{path}: not a regular file; {remedy}")
    try:
        with pq.ParquetFile(path) as file:
            yield file
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    except (OSError, pa.ArrowException, KeyError, ValueError) as error:  # ValueError: text that is not UTF-8
        raise BadInput(f"{path}: not a dataset that can be read ({one_line(error)}); {remedy}") from None


def shared_metadata(dataset: Dataset) -> dict[str, Any]:
    """Op-type frequencies and `proportional` batches, to group a new graph alike; None without graphs of ops."""
    import numpy as np

    from driple.pipeline.graph.public import OpGraph, op_frequency, size_batches

    used = {row["graph"] for row in dataset.rows}
    graphs = []
    for key, graph in sorted(dataset.graphs.items()):
        if key in used and "op_type" in graph:
            edges = np.stack([graph["edge_src"], graph["edge_dst"]], axis=1).astype(np.int64)
            graphs.append(OpGraph(tuple(graph["op_type"]), graph["op_bytes"], graph["op_flops"], edges))
    return {
        dataset_format.OP_FREQUENCY: op_frequency(graphs) if graphs else None,
        dataset_format.SIZE_BATCHES: to_plain(size_batches(len(g.ops) for g in graphs)) if graphs else None,
    }


def _read_graphs(table: Any) -> dict[str, Graph]:
    import pyarrow.compute as pc

    table = table.filter(pc.is_valid(table["edge_src"]))
    graphs: dict[str, dict[str, Any]] = {key: {} for key in table["graph"].to_pylist()}
    for column in LISTS:
        for key, cell in zip(graphs, table[column.name], strict=True):
            if cell.is_valid:
                if column.value_type == "text":
                    graphs[key][column.name] = [sys.intern(text) for text in cell.as_py()]
                else:
                    graphs[key][column.name] = cell.values.to_numpy(zero_copy_only=False).copy()
    return dict(graphs)


def _columns_of(rows: Sequence[Row]) -> Sequence[Column]:
    """Without columns that no row has, if they may be absent: rows of earlier runs keep the bytes of their file."""
    return [
        column
        for column in ROW_COLUMNS
        if column not in ABSENT_IF_NULL or any(row.get(column.name) is not None for row in rows)
    ]


def _row_arrays(rows: Sequence[Row], columns: Sequence[Column]) -> Iterable[Any]:
    import pyarrow as pa

    for column in columns:
        yield pa.array([_clean(column.name, row.get(column.name)) for row in rows], type=_arrow_type(column))


def _list_arrays(graphs: Sequence[Graph]) -> Iterable[Any]:
    import pyarrow as pa

    for column in LISTS:
        yield pa.array([graph.get(column.name) for graph in graphs], type=_arrow_type(column))


def _firsts(rows: Sequence[Row]) -> list[bool]:
    """Whether each row is the first of its graph."""
    seen: set[str | None] = {None}
    firsts = []
    for row in rows:
        firsts.append(row.get("graph") not in seen)
        seen.add(row.get("graph"))
    return firsts


def _arrow_type(column: Column) -> Any:
    import pyarrow as pa

    whole = pa.int32() if column.is_list else pa.int64()
    value = {"text": pa.string(), "int": whole, "real": pa.float64()}[column.value_type]
    return pa.list_(value) if column.is_list else value


def _leaf(column: Column) -> str:
    return f"{column.name}.list.element" if column.is_list else column.name


def _clean(name: str, value: Any) -> Any:
    """Null for NaN and infinity: readers would take them for measurements."""
    if name in _REALS and value is not None and not math.isfinite(value):
        return None
    return value


def _place(row: Row) -> tuple[str, str, int]:
    role, _, index = (row.get("task") or "").partition(":")
    return row["run_id"], role, int(index or 0)


def one_line(error: BaseException) -> str:
    """The message of an error on one line of limited length."""
    return " ".join(str(error).split())[:200] or type(error).__name__
