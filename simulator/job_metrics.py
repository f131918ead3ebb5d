"""The targets of a task of a simulated job: the pipeline's own metrics of what a sampler sees."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from driple.contracts.formats.device import CPU as CPU_KIND
from driple.contracts.formats.trace import COUNTER, column_of, units_per_amount
from driple.contracts.metrics import AMOUNT, BURST, IDLE, RESOURCES, Resource, burst_target
from driple.pipeline.bursts.series_metrics import Series, measure
from driple.simulator.sampling import SAMPLES, Readings, readings
from driple.simulator.simulate import SimulatedJob

SKIPPED_STEPS = 1
"""The first step has no step before it whose traffic overlaps with its own."""


def step_time_s(job: SimulatedJob, task: str) -> float:
    """Mean time of a measured step of a worker; of a server the mean over all workers."""
    workers = [int(task.partition(":")[2])] if task.startswith("worker") else range(len(job.begun))
    times = [np.diff(job.begun[k][SKIPPED_STEPS:]) for k in workers]
    return float(np.mean(np.concatenate(times)))


def job_metrics(
    job: SimulatedJob, task: str, kind: str, *, hz: float = 1000.0, method: str = SAMPLES
) -> dict[str, float | None]:
    """The targets of a task by column, and `step_s`.

    Args:
        job: the simulated job.
        task: such as `worker:0`.
        kind: of the device: `cpu`, or a GPU.
        hz: sampling rate.
        method: how NVML is read, `samples` or `gauge`.
    """
    seen = readings(job, task, hz, gpu=kind != CPU_KIND, method=method)
    step_s = step_time_s(job, task)
    start = max(float(times[min(SKIPPED_STEPS, len(times) - 1)]) for times in job.begun)
    end = min(float(times[-1]) for times in job.begun)
    found: dict[str, float | None] = {"step_s": step_s}
    for resource in RESOURCES:
        series = _series(resource, seen, kind)
        bib = None if series is None else measure(series.between(start, end), step_s=step_s)
        for metric, name in ((BURST, "burst_s"), (IDLE, "idle_s"), (AMOUNT, "burst_amount")):
            found[burst_target(resource, metric).column] = None if bib is None else getattr(bib, name)
        found[f"{resource.key}_idle_{resource.amount_suffix}"] = None if bib is None else bib.idle_amount
        found[f"{resource.key}_bursts"] = None if bib is None else float(bib.bursts)
    return found


def patterns(job: SimulatedJob, task: str, kind: str, *, method: str = SAMPLES) -> Mapping[str, str]:
    """The pattern of each resource of a task: `I`, `BIB` or `B`."""
    seen = readings(job, task, 1000.0, gpu=kind != CPU_KIND, method=method)
    step_s = step_time_s(job, task)
    series = {resource.key: _series(resource, seen, kind) for resource in RESOURCES}
    return {key: measure(one, step_s=step_s).pattern for key, one in series.items() if one is not None}


def _series(resource: Resource, seen: Mapping[str, Readings], kind: str) -> Series | None:
    column = column_of(resource, kind)
    found, per_amount = seen.get(column.name), units_per_amount(resource, column)
    if found is None or per_amount is None:
        return None
    if column.kind == COUNTER:
        value = np.diff(found.value) / np.diff(found.t_s) / per_amount
        refresh = float(found.t_s[1] - found.t_s[0])
        return Series(column.name, found.t_s[1:], value, resource.amount_unit, resource.kind, refresh)
    return Series(
        column.name, found.t_s, found.value / per_amount, resource.amount_unit, resource.kind, device_s=found.period_s
    )
