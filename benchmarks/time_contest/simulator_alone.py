"""The simulator of this project alone: what it says without any correction by features (docs/concepts/simulator.md).

As shipped
    step = f * simulated step, where f is the median of measured / simulated over training rows of the place. The
    shipped parameters were fitted to the training and validation families of cpu-p1w2-1g: they have seen these where
    they are left out. A workload without a stored training step has no prediction.
Refitted
    Steps that benchmarks/simulator_cpu.py predicted with parameters that were fitted anew without the families of the
    fold (benchmarks/data/simulator-cpu.json). They exist for the first three settings only, and hold where the training
    rows include the row's setting, to which the parameters were fitted.
"""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path

import numpy as np

from driple.inspector.data.array_types import FloatArray
from driple.inspector.time.simulated_steps import workload_of
from driple.inspector.time.time_rows import TimeRow, step_times
from time_contest.contestant import Predict, Rows
from time_contest.places import by_place, place_of, places_of

REFITTED = Path(__file__).parents[1] / "data" / "simulator-cpu.json"
LEAST_OF_PLACE = 40
"""Training rows of a place, below which it counts as left out: more than any number of anchors."""
_EQUAL = 1e-3
"""Of two step times: the same measurement."""


def learn_shipped(train: Rows, seed: int) -> Predict:
    """One factor for each place."""

    def fit(rows: Rows) -> Predict:
        shares = step_times(rows) / simulated_seconds(rows)
        known = shares[~np.isnan(shares)]
        factor = float(np.median(known)) if len(known) else 1.0
        return lambda asked: factor * simulated_seconds(asked)

    return by_place(fit, train)


def learn_refitted(train: Rows, seed: int) -> Predict:
    """Looks predictions up: nothing of the training rows is used, beside which places they have."""
    return lambda rows: refitted_seconds(rows, train)


def simulated_seconds(rows: Rows) -> FloatArray:
    """[n] by the shipped parameters; NaN where nothing is simulated."""
    return np.array([row.simulated_s or np.nan for row in rows], dtype=np.float64)


def refitted_seconds(rows: Rows, train: Rows) -> FloatArray:
    """[n] by parameters that were fitted without the family of the row.

    NaN where there are none, and where the training rows lack the row's place: parameters were fitted to rows of it.
    """
    known = {place for place in places_of(train) if _was_fitted([row for row in train if place_of(row) == place])}
    found = [_refitted(row)[1] if place_of(row) in known else np.nan for row in rows]
    return np.array(found, dtype=np.float64)


def _was_fitted(rows: Rows) -> bool:
    """Whether these rows of a place are those behind the figures: another machine has other parameters."""
    if len(rows) < LEAST_OF_PLACE:
        return False
    apart = np.array([abs(_refitted(row)[0] / row.step_s - 1) for row in rows])
    return bool((apart < _EQUAL).mean() > 0.5)


def _refitted(row: TimeRow) -> tuple[float, float]:
    """Measured and simulated seconds; NaN where there are none."""
    workload = workload_of(row.example.workload)
    nothing = (np.nan, np.nan)
    return nothing if workload is None else _refitted_steps().get((str(row.setting), workload.label), nothing)


@lru_cache(maxsize=1)
def _refitted_steps() -> dict[tuple[str, str], tuple[float, float]]:
    """Measured and simulated step by setting and label."""
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for setting, parts in json.loads(REFITTED.read_text()).items():
        for name, part in parts.items():
            if name.partition(" ")[0] in ("families", "architecture"):
                steps = zip(part["measured_step_s"], part["simulated_step_s"], strict=True)
                found |= {(setting, label): own for label, own in zip(part["workloads"], steps, strict=True)}
    return found
