"""The dataset of a setting: one Parquet file with a row per task of a run. Its columns, reading it, writing it.

A graph belongs to many rows (every task and repetition of a workload), so `graph` names it in all of them and the
lists stand in the first row that has it. The same rows give the same bytes: rows have one order, the writer one
manner, and nothing of the building itself (time, machine, order of work) is in the file.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driple.contracts.errors import BadInput, DripleError, shown
from driple.contracts.metrics import RESOURCES, TARGETS
from driple.contracts.run_dir import replacing

if TYPE_CHECKING:
    import pyarrow as pa

SCHEMA = "dataset"
SCHEMA_VERSION = 1
SUFFIX = ".parquet"

MEASURED = "measured"
SIMULATED = "simulated"
PUBLISHED = "published"

OPS = "ops"
GROUPS = "groups"

Row = dict[str, Any]
Graph = Mapping[str, Any]
"""The list columns of one graph: numpy arrays, and a list of texts for `op_type`."""


@dataclass(frozen=True)
class Column:
    """One column of a dataset."""

    name: str
    type: str
    """`text`, `int`, `real`, or a list of one of them."""
    meaning: str


def _columns(*lines: str) -> tuple[Column, ...]:
    return tuple(Column(*(part.strip() for part in line.split("|"))) for line in lines)


IDENTITY = _columns(
    "setting | text | the setting's text form",
    "model | text | name in the zoo, or `file.py:function`; null in published rows",
    "family | text | model family; of a user's own model its name; null in published rows",
    "dataset | text | what the model reads",
    "batch_size | int | examples a worker takes in a step",
    "optimiser | text | `sgd`, `momentum`, `rmsprop` or `adam`",
    "update | text | `sync` or `async`",
    "image_size | int | side in pixels; null for a model that reads no images",
    "sequence_length | int | tokens; null for a model that reads no sequences",
    "width | real | multiplier of channels or hidden units",
    "strategy | text | `ps` or `allreduce`",
    "sharding | text | how variables go to parameter servers",
    "framework | text | `tensorflow`",
    "code_sha256 | text | of a user's own model file",
    "network_rate_mbit | real | limit that was asked for; null for the setting's own link",
    "network_delay_ms | real | delay that was added",
    "network_loss_pct | real | loss that was asked for",
    "placement | text | JSON: which tasks shared a machine",
    "steps | int | measured steps asked for; null where a duration was",
    "duration_s | real | measured time asked for; null where steps were",
    "warmup_steps | int | steps before the measured part",
    "sampling_hz | real | samples a second asked for",
    "threads | int | intra-op threads of a task; 0 for the framework's own choice",
    "seed | int | of the run",
    "repetition | int | of the run, from 0",
    "task | text | `ps:0`, `worker:1`, ...; null in published rows",
    "role | text | `ps` or `worker`; null in published rows",
)

PROVENANCE = _columns(
    "run_id | text | the run's name; of a published row its place in the file",
    "provenance | text | `measured`, `simulated` or `published`",
    "inputs_sha256 | text | of run.json, which holds the checksums of every other file; of the published file",
    "rules_version | int | version of the rules that made the row",
    "attempt | int | which attempt of the run was sealed",
    "started_real_s | real | when the attempt began, seconds since 1970",
    "git_commit | text | of driple when it ran",
    "versions | text | JSON: of everything that took part",
    "host | text | the task's machine, as it calls itself",
    "host_kind | text | `ssh`, `lab` or `local`",
    "host_kernel | text | its kernel",
    "host_cores | int | its processors",
    "host_memory_bytes | int | its memory",
    "device | text | name of the task's GPU; `cpu` where the setting has none; null where it is not known",
    "traffic_source | text | where the network series come from: `nic:eth0`, `flows`, ...",
    "measured_rate_mbit | real | rate of the link as probed",
    "measured_loss_pct | real | loss of the link as probed",
    "network_done_by | text | JSON: what made each part of the network condition",
)

GRAPH = _columns(
    "graph | text | SHA-256 of the graph: rows of one graph have the same",
    "graph_kind | text | `ops` (ungrouped: group it with pipeline.graph) or `groups` (grouped already)",
    "nodes | int | ops, or groups",
    "edges | int | of the graph",
    "ops_unsized | int | ops whose tensor size rests on a guess: an unknown dimension or no shape",
    "ops_left_out | int | ops of the worker outside the largest connected part",
    "bytes_received | real | tensors that the worker takes from other tasks in a step; null where the graph names none",
    "bytes_sent | real | tensors that other tasks take from the worker in a step; null likewise",
    "bytes_busiest | real | of those received, those of the one task that gives most; null likewise",
)

LISTS = _columns(
    "op_type | list of text | type of each op",
    "op_bytes | list of real | tensor size of each op",
    "op_flops | list of real | floating-point operations of each op; NaN where unknown",
    "group_frequency | list of real | node-type frequency of each group, summed",
    "group_bytes | list of real | tensor size of each group, summed",
    "group_size | list of real | ops in each group",
    "edge_src | list of int | first end of each edge: a position in the lists above",
    "edge_dst | list of int | second end; between groups an edge has no direction and stands once, src < dst",
)

TARGET = tuple(Column(target.column, "real", f"{target.title}, {target.unit}") for target in TARGETS)

STATISTICS = tuple(
    column
    for resource in RESOURCES
    for column in _columns(
        f"{resource.key}_pattern | text | {resource.title}: `I`, `BIB`, `B` or `?`",
        f"{resource.key}_bursts | int | whole bursts that were counted",
        f"{resource.key}_burst_s_median | real | median burst duration, s",
        f"{resource.key}_burst_s_spread | real | spread of burst durations, s",
        f"{resource.key}_idle_s_median | real | median idle duration, s",
        f"{resource.key}_idle_s_spread | real | spread of idle durations, s",
        f"{resource.key}_burst_{resource.amount_suffix}_median | real | median burst amount, {resource.amount_unit}",
        f"{resource.key}_burst_{resource.amount_suffix}_spread | real | spread of amounts, {resource.amount_unit}",
        f"{resource.key}_idle_{resource.amount_suffix} | real | mean amount between bursts, {resource.amount_unit}",
        f"{resource.key}_period_s | real | of the cycle, s",
        f"{resource.key}_refresh_s | real | refresh period of the source, s",
    )
)

QUALITY = _columns(
    "step_s | real | mean time of a measured training step; of a server that of its workers; null in published rows",
    "clock_bound_s | real | the host's clock is wrong by at most this, s",
    "missed_ticks_pct | real | ticks that the sampler missed",
    "foreign_cpu_pct | real | processor time of the machine that no task of the run took, percent of one core",
    "flags | list of text | what to be careful with; `net_tx:...` is about one resource",
)

SPLIT = _columns(
    "split_architecture | text | `train`, `val` or `test`; no family on two sides; null where the family is unknown",
    "split_random | text | `train`, `val` or `test`; a published row keeps the side of its file",
)

TABLES: Mapping[str, tuple[Column, ...]] = {
    "Identity": IDENTITY,
    "Provenance": PROVENANCE,
    "Graph": GRAPH + LISTS,
    "Targets": TARGET,
    "Statistics": STATISTICS,
    "Quality": QUALITY,
    "Splits": SPLIT,
}
COLUMNS: tuple[Column, ...] = tuple(column for table in TABLES.values() for column in table)
LIST_NAMES = tuple(column.name for column in LISTS)
ROW_NAMES = tuple(column.name for column in COLUMNS if column.name not in LIST_NAMES)

_REALS = {column.name for column in COLUMNS if column.type == "real"}
_GROUP_ROWS = 1024


@dataclass
class Dataset:
    """All rows of a setting, and the graphs they name."""

    setting: str
    rows: list[Row] = field(default_factory=list)
    graphs: dict[str, Graph] = field(default_factory=dict)

    def runs(self) -> dict[str, list[Row]]:
        """Rows by run."""
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            found.setdefault(row["run_id"], []).append(row)
        return found


def graph_key(kind: str, graph: Graph) -> str:
    """The name of a graph: a hash of what it says, whatever file it came from."""
    import numpy as np

    digest = hashlib.sha256(kind.encode())
    for column in LISTS:
        values = graph.get(column.name)
        if values is None:
            continue
        digest.update(f"\0{column.name}:{len(values)}\0".encode())
        if column.type == "list of text":
            digest.update("\0".join(values).encode())
        else:
            digest.update(np.ascontiguousarray(values, dtype="<f8" if "real" in column.type else "<i4").tobytes())
    return digest.hexdigest()


def to_bytes(dataset: Dataset, metadata: Mapping[str, Any]) -> bytes:
    """The whole file.

    Args:
        dataset: rows in any order; a graph that no row names is left out.
        metadata: what all rows share, written as JSON under `driple.<key>`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = sorted(dataset.rows, key=_place)
    firsts = _firsts(rows)
    schema = _schema({"setting": dataset.setting, **metadata})
    edges = {f"{name}.list.element": "DELTA_BINARY_PACKED" for name in ("edge_src", "edge_dst")}
    stream = pa.BufferOutputStream()
    with pq.ParquetWriter(
        stream,
        schema,
        version="2.6",
        data_page_version="1.0",
        compression="zstd",
        compression_level=9,
        use_dictionary=[_leaf(column) for column in COLUMNS if _leaf(column) not in edges],
        column_encoding=edges,
        write_statistics=False,
    ) as writer:
        # A part at a time: of a large dataset, the lists of all graphs at once would be most of the memory of a build.
        for start in range(0, len(rows), _GROUP_ROWS):
            part = slice(start, start + _GROUP_ROWS)
            graphs = [
                dataset.graphs[row["graph"]] if first else {}
                for row, first in zip(rows[part], firsts[part], strict=True)
            ]
            writer.write_table(pa.table([*_row_arrays(rows[part]), *_list_arrays(graphs)], schema=schema))
    return bytes(stream.getvalue())


def check(rows: Sequence[Row]) -> None:
    """Makes sure that rows can be written, so that one run's odd values do not come to light with all the others'.

    Raises:
        ValueError: a value that its column cannot hold.
    """
    import pyarrow as pa

    try:
        list(_row_arrays(rows))
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"a value that no column can hold: {_line(error)}") from None


def put(content: bytes, path: Path) -> bool:
    """Puts the file in its place, whole; False where it stands there already."""
    try:
        if path.is_file() and path.stat().st_size == len(content) and path.read_bytes() == content:
            return False
        with replacing(path, "wb") as stream:
            stream.write(content)
    except OSError as error:
        raise DripleError(f"{path}: cannot be written: {error.strerror or error}") from None
    return True


def read(path: Path, setting: str) -> Dataset:
    """A dataset of this schema.

    Raises:
        BadInput: it cannot be read, is another kind of file, of another schema version or of another setting.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    remedy = "move it away to build it anew"
    if path.exists() and not path.is_file():
        raise BadInput(f"{path}: not a regular file; {remedy}")
    try:
        with pq.ParquetFile(path) as file:
            _check_metadata(path, file.schema_arrow.metadata or {}, setting, remedy)
            rows: list[Row] = file.read(columns=list(ROW_NAMES)).to_pylist()
            graphs = _read_graphs(file.read(columns=["graph", *LIST_NAMES]))
    except (OSError, pa.ArrowException, KeyError) as error:
        raise BadInput(f"{path}: not a dataset that can be read ({_line(error)}); {remedy}") from None
    return Dataset(setting, rows, graphs)


def _check_metadata(path: Path, metadata: Mapping[bytes, bytes], setting: str, remedy: str) -> None:
    if metadata.get(b"driple.schema") != SCHEMA.encode():
        raise BadInput(f"{path}: not a dataset of driple; {remedy}")
    version = metadata.get(b"driple.schema_version", b"?").decode()
    if version != str(SCHEMA_VERSION):
        raise BadInput(f"{path}: schema version {shown(version)}, this release reads {SCHEMA_VERSION}; {remedy}")
    found = json.loads(metadata.get(b"driple.setting", b"null"))
    if found != setting:
        raise BadInput(f"{path}: holds {shown(found)} and not {setting}; give the file back its name")


def _read_graphs(table: Any) -> dict[str, Graph]:
    import pyarrow.compute as pc

    table = table.filter(pc.is_valid(table["edge_src"]))
    graphs: dict[str, dict[str, Any]] = {key: {} for key in table["graph"].to_pylist()}
    for column in LISTS:
        for key, cell in zip(graphs, table[column.name], strict=True):
            if cell.is_valid:
                if column.type == "list of text":
                    graphs[key][column.name] = [sys.intern(text) for text in cell.as_py()]
                else:
                    graphs[key][column.name] = cell.values.to_numpy(zero_copy_only=False).copy()
    return dict(graphs)


def _row_arrays(rows: Sequence[Row]) -> Iterable[Any]:
    import pyarrow as pa

    for column in _ordered():
        if column.name not in LIST_NAMES:
            yield pa.array([_clean(column.name, row.get(column.name)) for row in rows], type=_arrow_type(column))


def _list_arrays(graphs: Sequence[Graph]) -> Iterable[Any]:
    import pyarrow as pa

    for column in LISTS:
        yield pa.array([graph.get(column.name) for graph in graphs], type=_arrow_type(column))


def _firsts(rows: Sequence[Row]) -> list[bool]:
    """Whether a row is the first of its graph."""
    seen: set[str | None] = {None}
    found = []
    for row in rows:
        found.append(row.get("graph") not in seen)
        seen.add(row.get("graph"))
    return found


def _ordered() -> tuple[Column, ...]:
    """Columns as they stand in the file: what a person looks at first, then the long lists."""
    return tuple(column for column in COLUMNS if column.name not in LIST_NAMES) + LISTS


def _schema(metadata: Mapping[str, Any]) -> pa.Schema:
    import pyarrow as pa

    plain = {f"driple.{key}": json.dumps(value, sort_keys=True, allow_nan=False) for key, value in metadata.items()}
    head = {"driple.schema": SCHEMA, "driple.schema_version": str(SCHEMA_VERSION)}
    return pa.schema([(column.name, _arrow_type(column)) for column in _ordered()], metadata={**head, **plain})


def _arrow_type(column: Column) -> Any:
    import pyarrow as pa

    of_list = column.type.removeprefix("list of ")
    wide = pa.int64() if of_list == column.type else pa.int32()
    value = {"text": pa.string(), "int": wide, "real": pa.float64()}[of_list]
    return value if of_list == column.type else pa.list_(value)


def _leaf(column: Column) -> str:
    return f"{column.name}.list.element" if column.type.startswith("list") else column.name


def _clean(name: str, value: Any) -> Any:
    """A number that is none (NaN, infinity) is null: it would be taken for one."""
    if name in _REALS and value is not None and not math.isfinite(value):
        return None
    return value


def _place(row: Row) -> tuple[str, str, int]:
    role, _, index = (row.get("task") or "").partition(":")
    return row["run_id"], role, int(index or 0)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
