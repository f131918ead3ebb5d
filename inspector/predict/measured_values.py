"""Measured values of a workload: the means over the rows of a dataset that ran it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from driple.contracts import row_machines
from driple.contracts.errors import BadInput
from driple.contracts.formats.dataset import (
    NETWORK_COLUMNS,
    OTHER_NETWORK_FLAGS,
    SIMULATED,
    check_metadata,
    dataset_path,
    fill_later_columns,
)
from driple.contracts.strategy import RING
from driple.inspector.data.dataset_rows import find_dataset
from driple.inspector.predict.request import PredictionQuery

STEP = "step_s"
FLAGS = "flags"
TOPOLOGY = "topology"
_SAME = (
    *("model", "dataset", "batch_size", "optimiser", "update", "image_size", "sequence_length", "width", "sharding"),
    "framework",
)


def measured_values(query: PredictionQuery, role: str, columns: Sequence[str], datasets: Path) -> dict[str, Any]:
    """The fields `measured` and `measured_note` of a Prediction.

    The mean of each column, and of STEP, over the rows of a workload and role; without columns that have no value.

    Raises:
        BadInput: there is no such dataset, or it has no row of the workload.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if query.workload.get("model") is None:
        raise BadInput("the graph file names no workload, so there are no measured rows to compare with")
    path = _dataset(datasets, str(query.setting))
    try:
        with pq.ParquetFile(path) as file:
            check_metadata(file.schema_arrow.metadata or {}, str(query.setting))
            names = ("role", "provenance", STEP, FLAGS, TOPOLOGY, *_SAME, *NETWORK_COLUMNS, *columns)
            names += (*row_machines.NEEDED, *row_machines.PLACED)
            there = [name for name in dict.fromkeys(names) if name in file.schema_arrow.names]
            rows = file.read(columns=there).to_pylist()
            for row in rows:
                fill_later_columns(row)
    except (pa.ArrowException, OSError, ValueError, KeyError):
        raise BadInput(f"{path}: not a dataset that can be read; build it again (driple-build-dataset)") from None
    except BadInput as error:
        raise BadInput(f"{path}: {error}") from None
    asked = {name: query.workload[name] for name in _SAME if query.workload.get(name) is not None}
    asked["role"] = role
    # A prediction is for the link of the setting: rows with loss or a limit are another workload.
    network = {name: query.workload.get(name, value) for name, value in NETWORK_COLUMNS.items()}
    if rows and all(row["provenance"] == SIMULATED for row in rows):
        raise _only_simulated(path)
    topology = query.topology or query.workload.get(TOPOLOGY) or RING
    same = [
        row
        for row in rows
        if row["provenance"] != SIMULATED
        and row[TOPOLOGY] in (None, topology)
        and all(row.get(name) == value for name, value in {**asked, **network}.items())
    ]
    on_network = [row for row in same if not {*OTHER_NETWORK_FLAGS} & {*(row.get(FLAGS) or ())}]
    if not same:
        label = ", ".join(f"{name} {value}" for name, value in asked.items())
        raise BadInput(f"{path}: no row of this workload ({label}); run it (driple-run), then driple-build-dataset")
    notes = [] if on_network else ["not on the network of the setting"]
    same = on_network or same
    used = row_machines.machines_of(same)
    notes += [row_machines.said(used)] if used.mixed else []
    known = {name: [row[name] for row in same if row.get(name) is not None] for name in (STEP, *columns)}
    means = {name: fmean(values) for name, values in known.items() if values and all(map(math.isfinite, values))}
    return {"measured": means, "measured_note": "; ".join(notes)}


def _dataset(datasets: Path, setting: str) -> Path:
    """The file of measured rows. Raises BadInput if there is none, also if there are simulated ones."""
    path = find_dataset(datasets, setting)
    if path != datasets and path == dataset_path(datasets, setting, simulated=True):
        raise _only_simulated(path)
    return path


def _only_simulated(path: Path) -> BadInput:
    return BadInput(f"{path}: its rows are simulated, not measured; --measured takes a folder of measured datasets")
