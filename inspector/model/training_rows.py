"""The training workloads of an inspector, in `training-rows.json` beside it.

The file identifies its training, so that an old file beside a new inspector is not used.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.formats.inspector import ROWS_FILE, ROWS_SCHEMA, ROWS_VERSION
from driple.contracts.graph_makers import TENSORFLOW
from driple.contracts.json_values import from_plain, read_json_file, to_plain
from driple.contracts.run_dir import replacing
from driple.contracts.strategy import RING
from driple.inspector.data.array_types import FloatArray
from driple.inspector.data.examples import Example, Examples
from driple.inspector.data.workload_features import RUNTIME_FEATURES, WORKLOAD_FEATURES, workload_features
from driple.inspector.model.model_config import EVERY

FIGURES = 6
"""Significant digits of a stored feature."""


@dataclass(frozen=True)
class Row:
    """A training workload."""

    label: str
    family: str | None
    facts: tuple[float | None, ...]
    """Features in the order of the file's `facts`, not scaled."""


@dataclass(frozen=True)
class TrainingRows:
    """The workloads of one training, and the names of their features (`facts`)."""

    dataset_sha256: str
    split: str
    role: str
    facts: tuple[str, ...]
    rows: tuple[Row, ...]
    frameworks: tuple[str, ...] = (TENSORFLOW,)
    """Of their graphs. Earlier releases learned from graphs of TensorFlow only, and did not say so."""

    def __post_init__(self) -> None:
        if not self.rows:
            raise BadInput("no training rows")
        if any(len(row.facts) != len(self.facts) for row in self.rows):
            raise BadInput("a row with another number of features")

    @classmethod
    def of(cls, examples: Examples, split: str, loops: str = EVERY) -> TrainingRows:
        """Those of the train side of a split; `loops` as the inspector counts."""
        items = examples.side(split, "train").items
        rows = tuple(
            Row(label_of(item), item.workload.get("family"), tuple(map(_short, workload_features(item, loops))))
            for item in items
        )
        frameworks = sorted({item.workload.get("framework") or TENSORFLOW for item in items})
        return cls(examples.sha256, split, examples.role, WORKLOAD_FEATURES, rows, tuple(frameworks))

    def table(self) -> FloatArray:
        """[n, len(WORKLOAD_FEATURES)], NaN where unknown."""
        found = np.full((len(self.rows), len(WORKLOAD_FEATURES)), np.nan)
        for place, name in enumerate(self.facts):
            if name in WORKLOAD_FEATURES:  # another release may have other features
                values = [row.facts[place] for row in self.rows]
                found[:, WORKLOAD_FEATURES.index(name)] = [math.nan if value is None else value for value in values]
        for name in set(RUNTIME_FEATURES) - set(self.facts):
            found[:, WORKLOAD_FEATURES.index(name)] = 0.0
        return found


def label_of(example: Example) -> str:
    """The `workload_label`, or the name of a published row."""
    if example.workload.get("model") is None and example.run_ids:
        return example.run_ids[0]
    return workload_label(example.workload)


def workload_label(workload: Mapping[str, Any]) -> str:
    """`resnet56 b64 s32 momentum sync`, without unknown values."""
    size = workload.get("image_size") or workload.get("sequence_length")
    width = workload.get("width")
    parts = [
        str(workload.get("model") or "model").rpartition("/")[2].replace(" ", "_"),
        f"b{workload['batch_size']}" if workload.get("batch_size") else "",
        f"x{width:g}" if width not in (None, 1.0) else "",
        f"s{size}" if size else "",
        workload.get("optimiser") or "",
        (workload.get("update") or "") if workload.get("strategy") != "allreduce" else "allreduce",
        workload["framework"] if workload.get("framework") not in (None, TENSORFLOW) else "",
        workload["topology"] if workload.get("topology") not in (None, RING) else "",
    ]
    return " ".join(part for part in parts if part)


def save_rows(folder: Path, rows: TrainingRows) -> None:
    """Writes the rows beside an inspector, a line each."""
    head = {"schema": ROWS_SCHEMA, "schema_version": ROWS_VERSION, **to_plain(rows)}
    lines = head.pop("rows")
    with replacing(folder / ROWS_FILE) as stream:
        stream.write(json.dumps(head, allow_nan=False)[:-1] + ', "rows": [\n')
        stream.write(",\n".join(json.dumps(line, separators=(",", ":"), allow_nan=False) for line in lines))
        stream.write("\n]}\n")


def load_rows(folder: Path, *, dataset_sha256: str, split: str, role: str) -> TrainingRows | None:
    """The rows beside an inspector; None where there are none, or they are of another training or release.

    Raises:
        BadInput: the file cannot be read.
    """
    path = folder / ROWS_FILE
    if not path.is_file():
        return None
    rows = read_json_file(path, _decode)
    if rows is None or (rows.dataset_sha256, rows.split, rows.role) != (dataset_sha256, split, role):
        return None
    return rows


def _decode(value: Any) -> TrainingRows | None:
    if not isinstance(value, dict) or value.pop("schema", None) != ROWS_SCHEMA:
        raise BadInput("not the training rows of an inspector")
    return from_plain(TrainingRows, value) if value.pop("schema_version", None) == ROWS_VERSION else None


def _short(value: float) -> float | None:
    return None if math.isnan(value) else float(f"{value:.{FIGURES}g}")
