"""A prediction by simulation, for a setting without an inspector: metrics and step time, no interval and no novelty."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, replace
from statistics import fmean

from driple.contracts.errors import BadInput
from driple.contracts.metrics import COLUMNS
from driple.contracts.run_spec import Workload
from driple.inspector.predict.prediction import Prediction, SimulationInfo
from driple.inspector.predict.request import GraphFile, PredictionQuery
from driple.pipeline.graph.public import TrainingStep
from driple.simulator.simulation import DeviceFit, simulate_workload

STEP = "step_s"


def simulated_answer(query: PredictionQuery, step: TrainingStep, role: str) -> Prediction:
    """The means over the tasks of a role.

    Raises:
        BadInput: the graph cannot be simulated on this setting, or a parameter file is wrong.
    """
    workload = _workload(query)
    try:
        found = simulate_workload(workload, query.setting, step=step)
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
        simulation=_info(found.device, role),
        simulated_step_s=means[STEP],
        novelty=None,
        ops=len(step.ops),
        unsized=step.unsized,
    )


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None]
    return fmean(known) if known else math.nan


def _workload(query: PredictionQuery) -> Workload:
    """The workload of a query. Of a graph file only some facts are known, and a simulation needs no others."""
    if not isinstance(query.source, GraphFile):
        return query.source.workload
    names = {one.name for one in fields(Workload)}
    known = {name: value for name, value in query.workload.items() if name in names and value is not None}
    return Workload(**{"model": query.source.path.stem, "dataset": "", "batch_size": 1, **known})


def _info(fit: DeviceFit, role: str) -> SimulationInfo:
    return SimulationInfo(
        role=role,
        device=fit.title,
        kind=fit.kind,
        device_file=fit.path,
        sha256=fit.sha256,
        error_pct=fit.error_pct,
        points=fit.points,
        fitted_to=fit.source,
    )
