"""The targets of one task of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from driple.contracts.formats.trace import COUNTER, column_of, units_per_amount
from driple.contracts.metrics import AMOUNT, BURST, IDLE, RESOURCES, TARGETS, Resource
from driple.contracts.setting import CPU
from driple.pipeline.bursts.burst_metrics import Bib, measure
from driple.pipeline.traces.load_run import Run
from driple.pipeline.traces.rates import rate
from driple.pipeline.traces.series import Series

_FIELD = {BURST.key: "burst_s", IDLE.key: "idle_s", AMOUNT.key: "burst_amount"}


@dataclass(frozen=True)
class TaskMetrics:
    """Targets and statistics of one task."""

    targets: Mapping[str, float | None]
    """By column, in the order of contracts/metrics.py; None if it was not measured or cannot be determined."""
    bibs: Mapping[str, Bib | None]
    """By resource; None if it was not measured."""
    step_s: float | None
    """Mean step time of the measured part; of a server that of its workers."""
    flags: tuple[str, ...]
    """Flags of the task, and flags of its series with the resource as prefix."""


def step_time_s(run: Run, task: str) -> float | None:
    """Mean time from the start of a measured step to the next; of a server the mean over all workers."""
    trace = run.tasks[task]
    tables = [trace.steps] if trace.steps is not None else [t.steps for t in run.tasks.values() if t.steps is not None]
    times = [
        (float(steps.end_s[-1]) - float(steps.start_s[0])) / len(steps.step) for steps in tables if len(steps.step)
    ]
    return float(np.mean(times)) if times else None


OTHER_VALUES: dict[str, Callable[[Run, str], float | None]] = {"step_s": step_time_s}
"""How to compute each target of contracts/metrics.py OTHER_TARGETS, by column, from a run and the name of a task."""


def resource_series(run: Run, task: str) -> dict[str, Series | None]:
    """The series of each resource by its key, in the measured part; None if it was not measured.

    On `device: cpu` the utilisation is that of processors; 100 % is one core. Memory utilisation has no substitute
    there: hardware counters of memory traffic count bytes, which are not a percentage of anything.
    """
    return {resource.key: _series(run, task, resource) for resource in RESOURCES}


def task_metrics(run: Run, task: str) -> TaskMetrics:
    """Targets, statistics and flags of a task."""
    step_s = step_time_s(run, task)
    bibs = {
        key: None if series is None else measure(series, step_s=step_s)
        for key, series in resource_series(run, task).items()
    }
    targets: dict[str, float | None] = {}
    for target in TARGETS:
        if target.resource is None or target.metric is None:
            targets[target.column] = OTHER_VALUES[target.column](run, task)
        else:
            bib = bibs[target.resource.key]
            targets[target.column] = None if bib is None else getattr(bib, _FIELD[target.metric.key])
    flags = (*run.tasks[task].flags, *(f"{key}:{flag}" for key, bib in bibs.items() if bib for flag in bib.flags))
    return TaskMetrics(targets, bibs, step_s, flags)


def _series(run: Run, task: str, resource: Resource) -> Series | None:
    trace = run.tasks[task]
    record = next(record for record in run.manifest.tasks if record.task == task)
    column = column_of(resource, CPU if run.manifest.on_cpu else run.manifest.run.setting.device)
    name = (resource.flow_column if record.traffic_source == "flows" else None) or column.name
    readings, per_amount = trace.readings.get(name), units_per_amount(resource, column)
    if readings is None or per_amount is None:
        return None
    if column.kind == COUNTER:
        limit = run.manifest.hosts[record.host].cores * 1e9 if column.unit == "ns" else None
        found = rate(readings.t_s, readings.value, limit_per_s=limit, step_s=step_time_s(run, task))
        value = found.per_s / per_amount
        whole = Series(name, found.t_s, value, resource.amount_unit, resource.kind, found.refresh.period_s, found.flags)
    else:
        value = readings.value.astype(np.float64) / per_amount
        whole = Series(name, readings.t_s, value, resource.amount_unit, resource.kind, device_s=readings.device_s)
    return whole.between(trace.window.start_s, trace.window.end_s)
