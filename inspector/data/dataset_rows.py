"""Reads the examples of a dataset: its workloads, each with its graph and its targets.

A dataset has a row for each task of each run. An example is a workload of one role: the mean over the tasks of that
role and over repetitions. contracts/formats/dataset.py defines the columns.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from driple.contracts import row_machines
from driple.contracts.errors import BadInput, nearest, shown
from driple.contracts.formats.dataset import COLUMNS as DATASET_COLUMNS
from driple.contracts.formats.dataset import (
    LATER_COLUMNS,
    LIST_NAMES,
    NETWORK_CHOICES,
    NETWORK_COLUMNS,
    OP_FREQUENCY,
    PROVENANCES,
    PUBLISHED,
    SHARE,
    SIDES,
    SIMULATED_FOLDER,
    SIZE_BATCHES,
    SPLITS,
    SUFFIX,
    TRAIN,
    check_metadata,
    check_one_share,
    dataset_path,
    fill_later_columns,
    is_simulated,
    joined_provenance,
    metadata_value,
    split_column,
)
from driple.contracts.formats.inspector import ROLES
from driple.contracts.json_values import from_plain
from driple.contracts.metrics import COLUMNS
from driple.contracts.setting import Setting
from driple.contracts.strategy import WORKER
from driple.inspector.data.examples import MOST, WORKLOAD, Example, Examples, Graph, PublishedGraph
from driple.inspector.data.graph_lists import read_graphs
from driple.inspector.model.model_config import one_of
from driple.pipeline.graph.public import SizeBatches, published_frequency, size_batches

_ONE_MACHINE = (
    f"an inspector learns from one: take the rows of one (driple-build-dataset --select {row_machines.COLUMN}=1 FILE"
    " --output DIR), or all with --set data.mix_machines=true"
)
_OTHERS = ("role", "run_id", "provenance", "graph", "graph_kind", *map(split_column, SPLITS))
_NETWORK_NUMBERS = tuple(name for name in NETWORK_COLUMNS if name not in NETWORK_CHOICES)
_NUMBERS = ("batch_size", "image_size", "sequence_length", "width", "threads", *_NETWORK_NUMBERS)
_TYPES = {column.name: column.value_type for column in DATASET_COLUMNS}
_TRAFFIC = ("bytes_received", "bytes_sent", "bytes_busiest")


def read_examples(
    datasets: Path, setting: str, role: str = WORKER, *, add_simulated: bool = False, mix_machines: bool = False
) -> Examples:
    """The examples of a setting: measured ones where there are any, else simulated ones.

    Args:
        datasets: the folder with `<setting>.parquet` or `simulated/<setting>.parquet`, or that file.
        setting: its text.
        role: `worker` or `ps`. Published rows have no role and count as those of workers.
        add_simulated: also take simulated examples, on the train side alone: what is judged stays measured.
        mix_machines: take runs of machines that differ by more than 5 % as if they were of one.

    Raises:
        BadInput: there is no such dataset, it cannot be read, or nothing can be learned from it; one line.
    """
    one_of("role", role, ROLES)
    text = str(Setting.parse(setting))
    found = _read_file(find_dataset(datasets, text), text, role, mix_machines)
    if not add_simulated:
        return found
    path = dataset_path(datasets, text, simulated=True)
    if is_simulated(found.provenance) or not path.is_file():
        raise BadInput(
            f"data.add_simulated: needs a measured dataset, {dataset_path(datasets, text)}, and a simulated one, {path}"
            " (driple-run --simulate, driple-build-dataset)"
        )
    return _with_simulated(found, _read_file(path, text, role, mix_machines))


def _read_file(path: Path, setting: str, role: str, mix_machines: bool) -> Examples:
    try:
        return _read(path, setting, role, mix_machines)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror or 'cannot be read'}") from None
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None


def _with_simulated(measured: Examples, simulated: Examples) -> Examples:
    """Measured examples, and the simulated ones of the train sides."""
    kept = [
        dataclasses.replace(
            item,
            split_architecture=TRAIN if item.split_architecture == TRAIN else None,
            split_random=TRAIN if item.split_random == TRAIN else None,
        )
        for item in simulated.items
    ]
    return dataclasses.replace(
        measured,
        provenance=joined_provenance((measured.provenance, simulated.provenance)),
        sha256=hashlib.sha256(f"{measured.sha256}{simulated.sha256}".encode()).hexdigest(),
        items=(*measured.items, *kept),
    )


def find_dataset(datasets: Path, setting: str, *, simulated: bool = True) -> Path:
    """The file of a setting: `datasets` itself, or the file in that folder. Raises BadInput if there is none.

    With `simulated`, the file of simulated rows if there is no other.
    """
    path = datasets if datasets.suffix == SUFFIX and not datasets.is_dir() else dataset_path(datasets, setting)
    if path.is_file():
        return path
    if simulated and not path.exists() and (other := dataset_path(path.parent, setting, True)).is_file():
        return other
    if path.exists():
        raise BadInput(f"{path}: not a regular file")
    folder = path.parent
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder}: not a folder of datasets, and not one (its name would end in {SUFFIX})")
    known = sorted({found.stem for part in (folder, folder / SIMULATED_FOLDER) for found in part.glob(f"*{SUFFIX}")})
    there = f"{folder} has {', '.join(known)}" if known else f"{folder} has none" if folder.is_dir() else f"no {folder}"
    guess = nearest(setting, known, cutoff=0.8)
    hint = f"; did you mean {guess}?" if guess else ""
    from driple.simulator.simulation import no_device  # only to explain: training needs no simulator

    lacking = no_device(Setting.parse(setting))
    but = "" if lacking is None else f", but there is {lacking}"
    raise BadInput(
        f"{path}: no such dataset ({there}{hint}); to make it, run an experiment with setting {setting} (driple-run;"
        f" --simulate needs no hosts{but}), then driple-build-dataset traces/"
    )


def _read(path: Path, setting: str, role: str, mix_machines: bool) -> Examples:
    import pyarrow as pa
    import pyarrow.parquet as pq

    content = path.read_bytes()
    try:
        with pq.ParquetFile(pa.BufferReader(content)) as file:
            schema = file.schema_arrow
            metadata = schema.metadata or {}
            check_metadata(metadata, setting)
            targets = [name for name in COLUMNS if name in schema.names]  # a target that it does not have is null
            needed = (*WORKLOAD, *_OTHERS, *targets, *LIST_NAMES)
            lacking = [name for name in needed if name not in schema.names]
            # A dataset can be older than these columns.
            for name in lacking:
                if name not in LATER_COLUMNS:
                    raise BadInput(f"column {name!r} is missing; rebuild it (driple-build-dataset)")
            needed = tuple(name for name in needed if name not in lacking)
            traffic = [name for name in _TRAFFIC if name in schema.names]
            others = (*(column.name for column in SHARE), *row_machines.NEEDED, *row_machines.PLACED)
            asked_for = dict.fromkeys((*needed[: -len(LIST_NAMES)], *traffic, *others))
            read = [name for name in asked_for if name in schema.names]
            _check_types(schema, (*read, *LIST_NAMES))
            rows = file.read(columns=read).to_pylist()
            check_one_share(row.get(column.name) for row in rows for column in SHARE)
            if not mix_machines:
                row_machines.check_one_machine(rows, _ONE_MACHINE)
            for row in rows:
                fill_later_columns(row)
            lists = file.read(columns=["graph", "graph_kind", *LIST_NAMES])
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise BadInput(f"not a dataset that can be read ({_line(error)}); rebuild the dataset") from None
    asked = [row for row in rows if row["role"] == role or (role == WORKER and _is_published(row))]
    if not asked:
        raise BadInput(f"no rows of role {role}: see --role")
    if any(row["run_id"] is None for row in rows):
        raise BadInput("a row without a run (run_id is null); rebuild the dataset")
    provenance = _one_provenance(rows)
    _check_numbers(rows, (*_NUMBERS, *traffic, *targets))
    graphs = read_graphs(lists, {row["graph"] for row in asked})
    items = _examples(asked, graphs)
    if all(np.isnan(item.targets).all() for item in items):
        raise BadInput(f"every target of every row of role {role} is null: there is nothing to learn")
    frequency, batches = _frequency(metadata, graphs.values())
    return Examples(
        setting=setting,
        role=role,
        provenance=provenance,
        sha256=hashlib.sha256(content).hexdigest(),
        frequency=frequency,
        batches=batches,
        items=items,
    )


def _check_types(schema: Any, names: Iterable[str]) -> None:
    import pyarrow as pa

    for name in names:
        kind = schema.field(name).type
        value = kind.value_type if pa.types.is_list(kind) else kind
        number = pa.types.is_integer(value) or pa.types.is_floating(value)
        right = pa.types.is_string(value) if _TYPES[name] == "text" else number
        if not right or (name in LIST_NAMES) != pa.types.is_list(kind):
            raise BadInput(f"column {name!r} is of type {kind}; rebuild it (driple-build-dataset)")


def _check_numbers(rows: Iterable[Mapping[str, Any]], names: Sequence[str]) -> None:
    for row in rows:
        if row["batch_size"] is not None and row["batch_size"] < 1:
            raise BadInput(f"run {row['run_id']}: batch_size is {row['batch_size']:g}; expected 1 or more")
        for name in names:
            value = row[name]
            if value is None:
                continue
            if not math.isfinite(value):
                raise BadInput(f"run {row['run_id']}: {name} is {value}; write null for an unknown value")
            if not 0 <= value <= MOST:
                raise BadInput(f"run {row['run_id']}: {name} is {value:g}; expected 0 to {MOST:g}; rebuild the dataset")
            if 0 < value < 1 / MOST:
                raise BadInput(f"run {row['run_id']}: {name} is {value:g}; expected 0, or more than {1 / MOST:g}")


def _is_published(row: Mapping[str, Any]) -> bool:
    return row["role"] is None and row["provenance"] == PUBLISHED


def _one_provenance(rows: Sequence[Mapping[str, Any]]) -> str:
    found = sorted({str(row["provenance"]) for row in rows})
    for unknown in set(found) - set(PROVENANCES):
        raise BadInput(f"rows of provenance {shown(unknown)}: expected {', '.join(PROVENANCES)}; rebuild the dataset")
    if len(found) > 1:
        raise BadInput(
            f"rows that are {' and '.join(found)} in one dataset: they are never mixed; build each kind into a folder"
            f" of its own (driple-build-dataset --output)"
        )
    return found[0]


def _examples(rows: Sequence[Mapping[str, Any]], graphs: Mapping[str, Graph]) -> tuple[Example, ...]:
    together: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        # The workload of a published row is unknown: two rows of one graph may be different workloads.
        own = row["run_id"] if _is_published(row) else None
        key = (*(row[name] for name in WORKLOAD), row["graph"], own)
        together.setdefault(key, []).append(row)
    return tuple(_example(part, graphs[part[0]["graph"]]) for part in together.values())


def _example(rows: Sequence[Mapping[str, Any]], graph: Graph) -> Example:
    first = rows[0]
    sides = {name: {row[name] for row in rows} for name in map(split_column, SPLITS)}
    for name, found in sides.items():
        if len(found) > 1 or not found <= {None, *SIDES}:
            raise BadInput(
                f"run {first['run_id']}: {name} is {shown(sorted(map(str, found)))}: expected one of {SIDES}"
            )
    values = np.array([[row.get(name) for name in COLUMNS] for row in rows], dtype=np.float64)
    count = (~np.isnan(values)).sum(axis=0)
    received, sent, busiest = (_mean(rows, name) for name in _TRAFFIC)
    return Example(
        workload={name: first[name] for name in WORKLOAD},
        graph=graph,
        graph_key=first["graph"],
        received_bytes=received,
        sent_bytes=sent,
        busiest_bytes=busiest,
        targets=np.where(count > 0, np.nansum(values, axis=0) / np.maximum(count, 1), np.nan),
        rows=len(rows),
        split_architecture=first["split_architecture"],
        split_random=first["split_random"],
        run_ids=tuple(sorted({row["run_id"] for row in rows})),
    )


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    known = [row[name] for row in rows if row.get(name) is not None]
    return float(np.mean(known)) if known else None


def _frequency(metadata: Mapping[bytes, bytes], graphs: Collection[Graph]) -> tuple[dict[str, float], SizeBatches]:
    """Frequencies of op types and batches of sizes, by which graphs are grouped."""
    frequency, batches = metadata_value(metadata, OP_FREQUENCY), metadata_value(metadata, SIZE_BATCHES)
    if frequency is not None and batches is not None:
        return from_plain(dict[str, float], frequency, OP_FREQUENCY), from_plain(SizeBatches, batches, SIZE_BATCHES)
    alone = [graph.features for graph in graphs if isinstance(graph, PublishedGraph)]
    if len(alone) < len(graphs):
        raise BadInput("no frequencies of op types in its metadata; rebuild it (driple-build-dataset --rebuild)")
    # The last feature of a group is its number of ops.
    return published_frequency(), size_batches(max(1, round(float(features[:, 2].sum()))) for features in alone)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
