"""A prediction by simulation, for a setting without an inspector: metrics and step time, no interval and no novelty."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from driple.contracts.errors import BadInput
from driple.contracts.metrics import COLUMNS
from driple.contracts.strategy import STRATEGIES, WORKER
from driple.inspector.predict.prediction import Prediction, SimulationInfo
from driple.inspector.predict.request import GraphFile, PredictionQuery
from driple.inspector.predict.step_traffic import traffic_of
from driple.pipeline.graph.public import TrainingStep
from driple.simulator.simulation import DeviceFit, simulate_workload, usual_backend

STEP = "step_s"
EVERY_S = 5.0
"""From one line of a simulation that takes long to the next."""

Say = Callable[[str], None]


def simulated_answer(query: PredictionQuery, step: TrainingStep, role: str, say: Say | None = None) -> Prediction:
    """The means over the tasks of a role. `say` gets a line now and then if it takes long.

    Raises:
        BadInput: the graph cannot be simulated on this setting, or a parameter file is wrong.
    """
    workload = query.known
    reduces = STRATEGIES[workload.strategy].has_topology and query.setting.workers > 1
    try:
        progress = None if say is None else _Progress(f"{query.setting} {workload.label}", say)
        backend = query.backend or (_usual_backend(query) if reduces else workload.backend)
        how: dict[str, Any] = {"topology": query.topology, "backend": backend, "progress": progress}
        found = simulate_workload(workload, query.setting, step=step, **how)
    except BadInput as error:
        where = f"{query.source.path}: " if isinstance(query.source, GraphFile) else ""
        raise BadInput(f"{where}{error}") from None
    tasks = [task for task in query.setting.tasks if task.startswith(f"{role}:")]
    if not tasks:
        raise BadInput(f"{query.setting} has no task of role {role}")
    every = [found.metrics(task) for task in tasks]
    means = {name: _mean([one.get(name) for one in every]) for name in (*COLUMNS, STEP)}
    # What the file of a graph does not say, the simulation assumes: the answer names it.
    assumed = {name: getattr(workload, name) for name in ("update", "optimiser", "strategy")}
    return Prediction(
        query=replace(query, workload={**query.workload, **assumed}),
        columns=COLUMNS,
        values=tuple(means[name] for name in COLUMNS),
        spread=None,
        inspector=None,
        simulation=_info(found.device, role, backend if reduces else None),
        coarse_s=found.coarse_s if role == WORKER else None,
        simulated_step_s=means[STEP],
        novelty=None,
        ops=len(step.ops),
        unsized=step.unsized,
        traffic=traffic_of(replace(query, backend=backend), step, found.job.step_traffic),
    )


def _usual_backend(query: PredictionQuery) -> str:
    return usual_backend(query.setting, query.path, query.known.framework)


class _Progress:
    def __init__(self, name: str, say: Say) -> None:
        self._name = name
        self._say = say
        self._said = time.monotonic()

    def __call__(self, share: float) -> None:
        now = time.monotonic()
        if now - self._said >= EVERY_S:
            self._said = now
            self._say(f"{self._name}: {100 * share:.0f} % simulated")


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return fmean(known) if known else math.nan


def _info(fit: DeviceFit, role: str, backend: str | None) -> SimulationInfo:
    return SimulationInfo(
        role=role,
        device=fit.title,
        kind=fit.kind,
        device_file=fit.path,
        sha256=fit.sha256,
        error_pct=fit.error_pct,
        points=fit.points,
        fitted_to=fit.source,
        machine=fit.machine,
        speed=fit.speed,
        backend=backend,
    )
