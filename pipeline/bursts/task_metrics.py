"""The 12 numbers of one task of a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from driple.contracts.formats.trace import COUNTER, column_of
from driple.contracts.metrics import AMOUNT, BURST, GPU, GPU_MEMORY, IDLE, NET_RX, NET_TX, RESOURCES, TARGETS, Resource
from driple.contracts.setting import CPU
from driple.pipeline.bursts.burst_metrics import Bib, measure
from driple.pipeline.traces.load_run import Run
from driple.pipeline.traces.rates import rate
from driple.pipeline.traces.series import BUSY, NETWORK, Series
from driple.pipeline.traces.task_flows import FLOWS_RX, FLOWS_TX

_KIND = {GPU.key: BUSY, GPU_MEMORY.key: BUSY, NET_TX.key: NETWORK, NET_RX.key: NETWORK}
_FLOWS = {NET_TX.key: FLOWS_TX, NET_RX.key: FLOWS_RX}
_FIELD = {BURST.key: "burst_s", IDLE.key: "idle_s", AMOUNT.key: "burst_amount"}
_NS_PER_PERCENT = 1e7
"""Of one core: 10 ms of its time in a second."""


@dataclass(frozen=True)
class TaskMetrics:
    """What one task did."""

    targets: Mapping[str, float | None]
    """The 12 columns of contracts/metrics.py in their order; None where there is no such resource or nothing to say."""
    bibs: Mapping[str, Bib | None]
    """By resource; None where there is no such resource."""
    step_s: float | None
    """Mean step time of the measured part; of a server that of its workers."""
    flags: tuple[str, ...]
    """Of the task, and of its series with the resource in front."""


def step_time_s(run: Run, task: str) -> float | None:
    """Mean time of a measured step, from one beginning to the next; of a server that of all workers."""
    trace = run.tasks[task]
    tables = [trace.steps] if trace.steps is not None else [t.steps for t in run.tasks.values() if t.steps is not None]
    times = [
        (float(steps.end_s[-1]) - float(steps.start_s[0])) / len(steps.step) for steps in tables if len(steps.step)
    ]
    return float(np.mean(times)) if times else None


OTHER_VALUES: dict[str, Callable[[Run, str], float | None]] = {}
"""How to compute each target of contracts/metrics.py OTHER_TARGETS, by column, from a run and the name of a task."""


def resource_series(run: Run, task: str) -> dict[str, Series | None]:
    """The series of each resource by its key, in the measured part; None where there is no such resource.

    On `device: cpu` utilisation is that of processors, 100 % being one core. Memory utilisation has no stand-in there:
    hardware counters of memory traffic, where a machine has them, count bytes and know of no 100 %.
    """
    return {resource.key: _series(run, task, resource) for resource in RESOURCES}


def task_metrics(run: Run, task: str) -> TaskMetrics:
    """All that a row of a dataset needs to know of what a task did."""
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


def targets(run: Run, task: str) -> dict[str, float | None]:
    """The 12 columns of contracts/metrics.py and their values."""
    return dict(task_metrics(run, task).targets)


def _series(run: Run, task: str, resource: Resource) -> Series | None:
    trace = run.tasks[task]
    device = run.manifest.run.setting.device
    record = next(record for record in run.manifest.tasks if record.task == task)
    column = column_of(resource, device)
    name = column.name
    if record.traffic_source == "flows":
        name = _FLOWS.get(resource.key, name)
    readings = trace.readings.get(name)
    if readings is None or (device == CPU and resource is GPU_MEMORY):
        return None
    kind = _KIND[resource.key]
    if column.kind != COUNTER:
        value = readings.value.astype(np.float64)
        whole = Series(name, readings.t_s, value, resource.amount_unit, kind, device_s=readings.device_s)
        return whole.between(trace.window.start_s, trace.window.end_s)
    per_unit = _NS_PER_PERCENT if resource is GPU else 1.0
    limit = run.manifest.hosts[record.host].cores * 1e9 if resource is GPU else None
    found = rate(readings.t_s, readings.value, limit_per_s=limit, step_s=step_time_s(run, task))
    refresh_s = found.refresh.period_s
    whole = Series(name, found.t_s, found.per_s / per_unit, resource.amount_unit, kind, refresh_s, found.flags)
    return whole.between(trace.window.start_s, trace.window.end_s)
