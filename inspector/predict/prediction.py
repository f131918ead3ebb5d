"""Prediction: the targets of one workload, what follows from them, and how far to trust them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from driple.contracts.data_frame import data_frame
from driple.contracts.formats.dataset import SIMULATED, joined_provenance
from driple.contracts.formats.device import CPU
from driple.contracts.formats.inspector import PREDICTIONS_SCHEMA, PREDICTIONS_VERSION
from driple.contracts.json_values import to_plain
from driple.contracts.metrics import BURST, IDLE, NET_RX, NET_TX, RESOURCES, Resource, Target, burst_target
from driple.inspector.predict.graph_notes import graph_notes
from driple.inspector.time.step_distribution import LEVEL

if TYPE_CHECKING:
    from driple.inspector.predict.novelty import Novelty
    from driple.inspector.predict.request import PredictionQuery
    from driple.inspector.predict.scaling_curve import ScalingCurve
    from driple.inspector.predict.step_traffic import StepTraffic
    from driple.inspector.time.step_distribution import StepDistribution
    from driple.inspector.time.training_plan import JobEstimate

DISAGREED = 1.5
"""Longest to shortest burst + idle of the resources from which the predictions of a workload contradict each other."""
TIME_MODEL = "time model"
"""Where a step time comes from that is a target of its own."""


@dataclass(frozen=True, eq=False, kw_only=True)
class InspectorInfo:
    """The inspector behind a prediction."""

    folder: Path
    role: str
    provenance: str
    split: str
    networks: int
    rows: int | None
    """Training workloads; None where not known."""
    dataset_sha256: str
    finished: bool
    """Whether its training was not interrupted."""


@dataclass(frozen=True, kw_only=True)
class SimulationInfo:
    """The simulation behind a prediction without an inspector."""

    role: str
    device: str
    """Title of the device file."""
    kind: str
    """`cpu` or `gpu`, of the device file."""
    device_file: str
    sha256: str
    error_pct: float | None
    """Of the fit behind the device file; None where it has none."""
    points: int | None
    """Measurements behind that fit."""
    fitted_to: str | None
    """The source of that fit."""
    machine: str | None = None
    """File of the machine of the setting's measured rows; None: the machine of the device file."""
    speed: float = 1.0
    """Of the machine, beside the one that the device file was fitted to."""
    backend: str | None = None
    """What carries the gradients of an all-reduce; None without one."""
    provenance: str = SIMULATED
    finished: bool = True

    @property
    def caution(self) -> str | None:
        """Which machine the figures are of, and the remedy for another one; None for a GPU, which is a product."""
        if self.kind != CPU:
            return None
        source = "" if self.fitted_to is None else f" ({self.fitted_to})"
        whose = f"the machine that {self.device_file} was fitted to"
        if self.machine is not None:
            whose = f"the machine of the setting's measured rows, {self.speed:g} times as fast ({self.machine})"
        return f"figures of {whose}{source}; for another one, such as this, run driple-calibrate"


@dataclass(frozen=True)
class Cycle:
    """Burst + idle time over the resources, in seconds."""

    mean: float
    least: float
    greatest: float

    @property
    def agreed(self) -> bool:
        """Whether the resources have about the same cycle, as those of a real job do."""
        return self.greatest <= DISAGREED * self.least


class StepTime(NamedTuple):
    """The time of a training step: a target of its own, as simulated, or burst + idle of one resource."""

    seconds: float
    resource: Resource | None
    """None where the time itself is known."""
    from_model: bool = False
    """Whether it is a target of its own."""

    @property
    def source(self) -> str:
        """TIME_MODEL, `simulated`, or the key of the resource."""
        return TIME_MODEL if self.from_model else SIMULATED if self.resource is None else self.resource.key


@dataclass(frozen=True, eq=False, kw_only=True)
class Prediction:
    """The targets of one workload on one setting."""

    query: PredictionQuery
    columns: tuple[str, ...]
    values: tuple[float, ...]
    """[columns], NaN where not predicted."""
    spread: tuple[float, ...] | None
    """[columns], about a standard deviation; None from a single network."""
    inspector: InspectorInfo | None
    """None where the workload was simulated directly."""
    simulation: SimulationInfo | None = None
    """None where an inspector answered."""
    simulated_step_s: float | None = None
    step: StepDistribution | None = None
    """Step time as a target of its own, with its uncertainty; None without a time predictor."""
    step_note: str = ""
    """Of which machine the step time is, or why the time model does not tell it; empty without a time model."""
    coarse_s: float | None = None
    """The period of GPU samples, if a step is too short for it; None where durations of the GPU are those of steps."""
    novelty: Novelty | None
    """Distance from the training workloads; None where these are not known, or there are none."""
    ops: int
    unsized: int
    """Ops whose size is a guess."""
    traffic_known: bool = True
    """Whether the graph has the bytes that cross between tasks in a step."""
    limited: tuple[str, ...] = ()
    """Columns at the upper limit of predictions, a multiple of the greatest training value: the truth may be more."""
    traffic: StepTraffic | None = None
    """Who sends how much to whom in a step; None where the graph does not tell."""
    measured: Mapping[str, float] = field(default_factory=dict)
    """Measured means by column, with `step_s`; empty if none were asked for."""
    measured_note: str = ""
    """What is special about the measured rows."""
    job: JobEstimate | None = None
    """The whole training; None without a plan, or without a step time."""

    @property
    def basis(self) -> InspectorInfo | SimulationInfo:
        """The inspector, or the simulation."""
        found = self.inspector or self.simulation
        assert found is not None
        return found

    @property
    def on_cpu(self) -> bool:
        """Whether workers compute on CPUs: by the device file of a simulation, else by the setting."""
        return self.query.setting.device == CPU if self.simulation is None else self.simulation.kind == CPU

    @property
    def role(self) -> str:
        """Whose metrics: `worker` or `ps`."""
        return self.basis.role

    @property
    def provenance(self) -> str:
        """Of the rows that the inspector learned from; `simulated` without an inspector."""
        return self.basis.provenance

    @property
    def setting(self) -> str:
        return str(self.query.setting)

    @property
    def workload(self) -> dict[str, Any]:
        """Everything known of the workload."""
        return {name: value for name, value in self.query.workload.items() if value is not None}

    @property
    def framework(self) -> str:
        """What the graph was built with: `tensorflow`, `torch` or `onnx`."""
        return self.query.maker

    @property
    def graph_notes(self) -> tuple[str, ...]:
        """What one must know of a graph that TensorFlow did not build."""
        return tuple(graph_notes(self.query, simulated=self.simulation is not None))

    @property
    def metrics(self) -> dict[str, float | None]:
        """Values by target column, in the unit of its name; None where not predicted."""
        return _by_column(self.columns, self.values)

    @property
    def intervals(self) -> dict[str, tuple[float, float] | None]:
        """One standard deviation below and above each value; None without a spread."""
        spread = self.spread or (math.nan,) * len(self.values)
        pairs = {name: (max(0.0, v - s), v + s) for name, v, s in zip(self.columns, self.values, spread, strict=True)}
        return {name: pair if math.isfinite(pair[1]) else None for name, pair in pairs.items()}

    def value(self, target: Target) -> float:
        """The value of a target; NaN where it is not predicted."""
        return self.values[self.columns.index(target.column)] if target.column in self.columns else math.nan

    def spread_of(self, target: Target) -> float | None:
        known = self.spread is not None and target.column in self.columns
        return (self.spread or ())[self.columns.index(target.column)] if known else None

    def cycle_of(self, resource: Resource) -> float:
        """Burst + idle time of a resource; NaN where one of them is not predicted."""
        return self.value(burst_target(resource, BURST)) + self.value(burst_target(resource, IDLE))

    @property
    def cycle(self) -> Cycle | None:
        """Burst + idle over all resources; None where no resource has both times."""
        known = [one for one in map(self.cycle_of, RESOURCES) if not math.isnan(one)]
        return Cycle(sum(known) / len(known), min(known), max(known)) if known else None

    @property
    def step_time(self) -> StepTime | None:
        """As a target of its own; else as simulated; else burst + idle of network RX, of TX, of another resource.

        A worker receives the variables once a step. CPU time has several bursts in many steps, so its cycles are 18 to
        42 % shorter than steps (docs/guides/metrics.md).
        """
        if self.step is not None:
            return StepTime(self.step.seconds, None, from_model=True)
        if self.simulated_step_s is not None:
            return StepTime(self.simulated_step_s, None)
        for resource in (NET_RX, NET_TX, *RESOURCES):
            if not math.isnan(self.cycle_of(resource)):
                return StepTime(self.cycle_of(resource), resource)
        return None

    @property
    def step_time_s(self) -> float | None:
        return None if self.step_time is None else self.step_time.seconds

    def step_interval(self, level: float = LEVEL) -> tuple[float, float] | None:
        """Seconds between which a step lies with this probability; None where the step is no target of its own."""
        return None if self.step is None else self.step.interval(level)

    @property
    def examples_per_s(self) -> float | None:
        """Of all workers together; None for a parameter server, whose cycle is not a step."""
        batch, step = self.query.workload.get("batch_size"), self.step_time_s
        if batch is None or not step or self.role != "worker":
            return None
        return float(self.query.setting.workers * batch / step)


@dataclass(frozen=True, eq=False)
class Predictions(Sequence[Prediction]):
    """The predictions of a request, in the order of settings, batch sizes and update modes."""

    items: tuple[Prediction, ...]
    scaled: bool = False
    """Whether scaling curves were asked for."""

    def __len__(self) -> int:
        return len(self.items)

    def __iter__(self) -> Iterator[Prediction]:
        return iter(self.items)

    @overload
    def __getitem__(self, place: int) -> Prediction: ...
    @overload
    def __getitem__(self, place: slice) -> Predictions: ...
    def __getitem__(self, place: int | slice) -> Prediction | Predictions:
        return replace(self, items=self.items[place]) if isinstance(place, slice) else self.items[place]

    def __str__(self) -> str:
        from driple.inspector.predict.answer_text import lines

        return "\n".join(lines(self))

    @property
    def scaling(self) -> tuple[ScalingCurve, ...]:
        """A curve over the number of workers for each setting, batch size and update mode; empty unless asked for."""
        from driple.inspector.predict.scaling_curve import scaling_curves

        return scaling_curves(self.items) if self.scaled else ()

    @property
    def ranking(self) -> Predictions:
        """Those with a deadline or a budget: first those that meet it, best first, then the others."""
        from driple.inspector.predict.job_answer import ranked

        return replace(self, items=tuple(ranked(self.items)))

    def to_json(self) -> dict[str, Any]:
        """As JSON values: metrics in the units of their names, null where unknown."""
        found = [_plain(one) for one in self.items]
        about = {"schema": PREDICTIONS_SCHEMA, "schema_version": PREDICTIONS_VERSION, "provenance": self.provenance}
        return {**about, "predictions": found, **self._extra_json()}

    def _extra_json(self) -> dict[str, Any]:
        """A ranking and scaling curves, where they were asked for."""
        from driple.inspector.predict.job_answer import ranking_json

        found: dict[str, Any] = {}
        if any(one.job is not None and one.job.plan.limited for one in self.items):
            found["ranking"] = ranking_json(self.items)
        if self.scaled:
            found["scaling"] = [curve.to_json() for curve in self.scaling]
        return found

    @property
    def provenance(self) -> str:
        """Of all predictions together."""
        return joined_provenance(one.provenance for one in self.items)

    def rows(self) -> list[dict[str, Any]]:
        """A flat row per prediction: workload, step time, novelty, every metric and its spread (`<name>_spread`).

        With a plan also steps, epoch and total time, cost and probability of the job.
        """
        return [_row(one) for one in self.items]

    def to_frame(self) -> Any:
        """The rows as a pandas DataFrame.

        Raises:
            BadInput: pandas is not installed.
        """
        return data_frame(self.rows())

    def _repr_html_(self) -> str:
        """A table for notebooks: a line per quantity, a column per prediction; without lines that have no value."""
        rows = self.rows()
        head = "".join(f"<th>{escape(f'prediction {n + 1}')}</th>" for n in range(len(rows)))
        names = [name for name in (rows[0] if rows else {}) if not name.endswith("_spread")]
        lines = [
            f"<tr><th>{escape(name)}</th>{''.join(f'<td>{_cell(row, name)}</td>' for row in rows)}</tr>"
            for name in names
            if any(row.get(name) is not None for row in rows)
        ]
        return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _row(one: Prediction) -> dict[str, Any]:
    from driple.inspector.predict.job_answer import columns

    names = ("model", "batch_size", "update", "optimiser", "dataset")
    return {
        "provenance": one.provenance,
        "setting": one.setting,
        "role": one.role,
        **{name: one.query.workload.get(name) for name in names},
        "step_time_s": one.step_time_s,
        "examples_per_s": one.examples_per_s,
        **({} if one.job is None else columns(one.job)),
        "traffic_bytes": None if one.traffic is None else one.traffic.bytes,
        "traffic_flows": None if one.traffic is None else one.traffic.flows,
        "novelty": None if one.novelty is None else one.novelty.verdict,
        "novelty_distance": None if one.novelty is None else _finite(one.novelty.distance),
        "framework": one.framework,
        "framework_seen": None if one.novelty is None else one.novelty.framework_seen,
        **one.metrics,
        **{f"{name}_spread": value for name, value in _by_column(one.columns, one.spread or ()).items()},
        **{f"{name}_measured": value for name, value in one.measured.items()},
    }


def _cell(row: Mapping[str, Any], name: str) -> str:
    value, spread = row.get(name), row.get(f"{name}_spread")
    text = "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
    return escape(text if spread is None else f"{text} ± {spread:.2g}")


def _plain(one: Prediction) -> dict[str, Any]:
    from driple.inspector.predict.job_answer import to_json

    step = one.step_time
    return {
        "setting": one.setting,
        "role": one.role,
        "workload": one.workload,
        "provenance": one.provenance,
        "metrics": one.metrics,
        "spread": None if one.spread is None else _by_column(one.columns, one.spread),
        "step_time_s": one.step_time_s,
        "step_time_from": None if step is None else step.source,
        "step_interval_s": _interval(one.step_interval()),
        "step_note": one.step_note or None,
        "cycle_s": None if one.cycle is None else to_plain(one.cycle),
        "examples_per_s": one.examples_per_s,
        "traffic": None if one.traffic is None else one.traffic.to_json(),
        "at_limit": list(one.limited),
        "gpu_sampled_every_s": one.coarse_s,
        **({} if one.job is None else {"job": to_json(one.job)}),
        **({"measured": dict(one.measured), "measured_note": one.measured_note} if one.measured else {}),
        "graph": {
            **{"ops": one.ops, "unsized": one.unsized, "traffic_known": one.traffic_known},
            **{"framework": one.framework, "notes": list(one.graph_notes)},
        },
        "inspector": None if one.inspector is None else _inspector(one.inspector),
        "simulation": None if one.simulation is None else _simulation(one.simulation),
        "nearness": None if one.novelty is None else _novelty(one.novelty),
    }


def _inspector(info: InspectorInfo) -> dict[str, Any]:
    return {
        **{"folder": str(info.folder), "split": info.split, "networks": info.networks},
        **{"training_rows": info.rows, "dataset_sha256": info.dataset_sha256, "finished": info.finished},
    }


def _simulation(info: SimulationInfo) -> dict[str, Any]:
    of_fit = ("error_pct", "points", "fitted_to", "machine", "speed", "backend", "caution")
    names = ("device", "kind", "device_file", "sha256", *of_fit)
    return {name: getattr(info, name) for name in names}


def _novelty(novelty: Novelty) -> dict[str, Any]:
    nearest = [{"workload": label, "distance": _finite(distance)} for label, distance in novelty.nearest]
    about = {"framework_seen": novelty.framework_seen, "framework_note": novelty.framework_line}
    return {**to_plain(novelty), **about, "distance": _finite(novelty.distance), "nearest": nearest}


def _by_column(columns: Sequence[str], values: Sequence[float]) -> dict[str, float | None]:
    return {column: _finite(value) for column, value in zip(columns, values, strict=False)}


def _interval(ends: tuple[float, float] | None) -> list[float | None] | None:
    return None if ends is None else [_finite(end) for end in ends]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
