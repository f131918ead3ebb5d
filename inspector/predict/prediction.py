"""Answer: what an inspector says to a question, what follows from it, and how far to trust it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driple.contracts.formats.inspector import PREDICTIONS_SCHEMA, PREDICTIONS_VERSION
from driple.contracts.json_values import to_plain
from driple.contracts.metrics import BURST, COLUMNS, IDLE, RESOURCES, Target, burst_target

if TYPE_CHECKING:
    from driple.inspector.predict.novelty import Novelty
    from driple.inspector.predict.request import PredictionQuery

DISAGREED = 1.5
"""Longest burst + idle to shortest, from where on the mean over resources says little."""


@dataclass(frozen=True, eq=False, kw_only=True)
class InspectorInfo:
    """Of an inspector, what a reader of its answers should know."""

    folder: Path
    role: str
    provenance: str
    split: str
    networks: int
    rows: int | None
    """Workloads that it learned from; None where not known."""
    dataset_sha256: str
    finished: bool
    """Whether its training came to its end."""


@dataclass(frozen=True)
class Cycle:
    """Burst and idle time together: about a training step."""

    mean: float
    """Over the resources, in seconds."""
    least: float
    greatest: float

    @property
    def agreed(self) -> bool:
        """Whether the resources say about the same, as those of a real job do."""
        return self.greatest <= DISAGREED * self.least


@dataclass(frozen=True, eq=False, kw_only=True)
class Prediction:
    """The 12 metrics of one workload on one setting."""

    question: PredictionQuery
    values: tuple[float, ...]
    """[12], NaN where not predicted."""
    spread: tuple[float, ...] | None
    """[12], about a standard deviation; None from a single network."""
    about: InspectorInfo
    near: Novelty | None
    """None where the training rows are not known."""
    ops: int
    unsized: int
    """Ops whose size rests on a guess."""
    traffic_known: bool = True
    """Whether the graph says what crosses between tasks in a step."""
    limited: tuple[str, ...] = ()
    """Columns of which no more is said than a multiple of all that was measured: the truth may be more."""

    def value(self, target: Target) -> float:
        return self.values[COLUMNS.index(target.column)]

    def spread_of(self, target: Target) -> float | None:
        return None if self.spread is None else self.spread[COLUMNS.index(target.column)]

    @property
    def cycle(self) -> Cycle | None:
        """None where no resource has both times."""
        sums = [self.value(burst_target(one, BURST)) + self.value(burst_target(one, IDLE)) for one in RESOURCES]
        known = [one for one in sums if not math.isnan(one)]
        return Cycle(sum(known) / len(known), min(known), max(known)) if known else None

    @property
    def examples_per_s(self) -> float | None:
        """Of all workers together, if each takes a batch in a cycle. A server's cycle says nothing of that."""
        batch, cycle = self.question.workload.get("batch_size"), self.cycle
        if batch is None or cycle is None or cycle.mean <= 0 or self.about.role != "worker":
            return None
        return float(self.question.setting.workers * batch / cycle.mean)


def to_json(answers: Sequence[Prediction]) -> dict[str, Any]:
    """Plain values: metrics in the units that their names say, null where unknown."""
    return {
        "schema": PREDICTIONS_SCHEMA,
        "schema_version": PREDICTIONS_VERSION,
        "predictions": [_plain(one) for one in answers],
    }


def _plain(answer: Prediction) -> dict[str, Any]:
    about = answer.about
    return {
        "setting": str(answer.question.setting),
        "role": about.role,
        "workload": {name: value for name, value in answer.question.workload.items() if value is not None},
        "provenance": about.provenance,
        "metrics": _by_column(answer.values),
        "spread": None if answer.spread is None else _by_column(answer.spread),
        "cycle_s": None if answer.cycle is None else to_plain(answer.cycle),
        "examples_per_s": answer.examples_per_s,
        "at_limit": list(answer.limited),
        "graph": {"ops": answer.ops, "unsized": answer.unsized, "traffic_known": answer.traffic_known},
        "inspector": {
            "folder": str(about.folder),
            "split": about.split,
            "networks": about.networks,
            "training_rows": about.rows,
            "dataset_sha256": about.dataset_sha256,
            "finished": about.finished,
        },
        "nearness": None if answer.near is None else _near(answer.near),
    }


def _near(near: Novelty) -> dict[str, Any]:
    nearest = [{"workload": label, "distance": _finite(distance)} for label, distance in near.nearest]
    return {**to_plain(near), "distance": _finite(near.distance), "nearest": nearest}


def _by_column(values: Sequence[float]) -> dict[str, float | None]:
    return {column: _finite(value) for column, value in zip(COLUMNS, values, strict=True)}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
