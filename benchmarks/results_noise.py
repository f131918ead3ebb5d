"""How much the measurement itself varies: the same run several times (experiments/lab-repeats.yaml)."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from repeatability import mean_distance
from results_contest import settings_in

from driple.contracts.formats.dataset import fill_later_columns
from driple.contracts.metrics import COLUMNS
from driple.inspector.data.examples import WORKLOAD

ROLE = "worker"
LEAST = 3
"""Repetitions of a workload, so that it is looked at."""


def measure(datasets: Path) -> dict[str, Any]:
    """By setting and workload: values of every repetition, and how far one lies from the mean of the others."""
    found: dict[str, Any] = {}
    for setting in settings_in(datasets):
        path = datasets / f"{setting}.parquet"
        names = set(pq.read_schema(path).names)  # older files lack later columns
        columns = [name for name in (*WORKLOAD, "role", "repetition", "provenance", *COLUMNS) if name in names]
        rows = pq.read_table(path, columns=columns).to_pylist()
        runs: dict[str, dict[int, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
        for row in rows:
            fill_later_columns(row)
            if row["role"] == ROLE:
                name = f"{row['model']} b{row['batch_size']} {row['optimiser']} {row['update']}"
                key = "|".join(str(row[column]) for column in WORKLOAD)
                runs[f"{name}|{key}"][row["repetition"]].append(row)
        repeated = {key.split("|")[0]: list(by.values()) for key, by in runs.items() if len(by) >= LEAST}
        if repeated:
            found[setting] = {name: spread(each) for name, each in repeated.items()}
    return found


def spread(runs: list[list[dict[str, Any]]]) -> dict[str, Any]:
    """Of each target: the values, means over the run's workers, and the mean distance from the mean of the others."""
    spread: dict[str, Any] = {"runs": len(runs), "values": {}, "distance": {}}
    for column in COLUMNS:
        values = [_mean([row[column] for row in tasks]) for tasks in runs]
        known = np.array([value for value in values if value is not None], dtype=np.float64)
        spread["values"][column] = [float(value) for value in known]
        if len(known) >= LEAST and (known > 0).all():
            spread["distance"][column] = mean_distance(known)
    return spread


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
