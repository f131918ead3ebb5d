"""Processor time of a machine that other programs used during a run."""

from __future__ import annotations

import numpy as np

from driple.pipeline.traces.load_run import Readings, Run, TaskTrace

LIMIT_PCT = 20.0
"""Percent of one core. Samplers, agents and the network take 5 to 6 on an otherwise idle machine."""

_ONE_MACHINE = ("lab", "local")
"""Kinds of hosts that share the controller's machine."""


def background_cpu_pct(run: Run, task: str) -> float | None:
    """Mean processor time in the measured part that no task of the run used, in percent of one core.

    None if the processor time of the machine or of a task was not recorded.
    """
    trace = run.tasks[task]
    beside = [other for other in run.tasks.values() if _machine(run, other) == _machine(run, trace)]
    whole = _spent_ns(trace.readings.get("host_cpu_busy_ns"), trace)
    own = [_spent_ns(other.readings.get("task_cpu_ns"), trace) for other in beside]
    if whole is None or trace.window.duration_s <= 0:
        return None
    known = [spent for spent in own if spent is not None]
    if len(known) < len(own):
        return None
    return max(0.0, 100.0 * (whole - sum(known)) / 1e9 / trace.window.duration_s)


def _machine(run: Run, trace: TaskTrace) -> str:
    host = run.manifest.hosts[trace.host]
    return "" if host.kind in _ONE_MACHINE else host.hostname


def _spent_ns(readings: Readings | None, trace: TaskTrace) -> float | None:
    if readings is None or len(readings.t_s) < 2:
        return None
    first, last = np.interp([trace.window.start_s, trace.window.end_s], readings.t_s, readings.value.astype(float))
    return float(last - first)
