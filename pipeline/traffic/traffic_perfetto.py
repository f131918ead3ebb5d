"""Writes the traffic of a job as a Chrome trace: throughput of pairs, flows, steps, and bursts of devices.

Times are those of the job's timeline, so that the file fits the one of driple-metrics.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.formats.dataset import is_simulated
from driple.contracts.run_dir import replacing
from driple.pipeline.bursts.burst_metrics import analyse
from driple.pipeline.bursts.task_metrics import resource_series, step_time_s
from driple.pipeline.traffic.traffic_events import FlowFacts
from driple.pipeline.traffic.traffic_job import TrafficJob

_BIN_S = 0.01
_MOST_FLOWS = 2000
_PAIRS, _FLOWS, _TASKS = 1, 2, 3  # processes of the trace


def write_traffic_perfetto(path: Path, job: TrafficJob) -> None:
    """Writes the file. Raises BadInput."""
    try:
        with replacing(path) as stream:
            json.dump({"displayTimeUnit": "ms", "traceEvents": traffic_events(job)}, stream, allow_nan=False)
    except OSError as error:
        raise BadInput(f"--perfetto {path}: {error.strerror}") from None


def traffic_events(job: TrafficJob) -> list[dict[str, Any]]:
    """The events, with times in microseconds."""
    simulated = f" ({job.provenance})" if is_simulated(job.provenance) else ""
    processes = ((_PAIRS, "throughput"), (_FLOWS, "flows"), (_TASKS, "tasks"))
    found = [_named(number, name + simulated) for number, name in processes]
    start_s, end_s = job.best.span
    bin_s = max(_BIN_S, job.best.resolution_s)
    try:
        rates = job.best.pair_throughput(bin_s, start_s, end_s + bin_s)
    except BadInput as error:
        raise BadInput(f"{job.path}: {error}") from None
    for (source, destination), rate in rates.items():
        name = f"{source} > {destination}"
        changed = np.flatnonzero(np.r_[True, rate[1:] != rate[:-1]])
        found += [
            {"ph": "C", "pid": _PAIRS, "name": name, "ts": _us(start_s + i * bin_s), "args": {"MB/s": rate[i] / 1e6}}
            for i in changed.tolist()
        ]
    for tid, row in enumerate(_largest_flows(job), start=1):
        flow = row.flow
        ends = f"{flow.source_task}:{flow.source.port} > {flow.destination_task}:{flow.destination.port}"
        found.append(_named(_FLOWS, ends, tid))
        found.append(_slice(_FLOWS, tid, ends, row.start_s, row.end_s, {"bytes": row.bytes}))
    for tid, (task, steps) in enumerate(job.steps.items(), start=1):
        found.append(_named(_TASKS, f"{task}: steps", tid))
        rows = zip(steps.step.tolist(), steps.start_s.tolist(), steps.end_s.tolist(), strict=True)
        found += [_slice(_TASKS, tid, f"step {step}", start, end, {}) for step, start, end in rows]
    return found + _bursts(job, first=len(job.steps) + 1)


def _largest_flows(job: TrafficJob) -> list[FlowFacts]:
    """At most _MOST_FLOWS, in the order of their beginnings: a viewer shows each on a line of its own."""
    rows = job.events.flow_facts()
    kept = set(sorted(range(len(rows)), key=lambda place: -rows[place].bytes)[:_MOST_FLOWS])
    return [row for place, row in enumerate(rows) if place in kept]


def _bursts(job: TrafficJob, first: int) -> list[dict[str, Any]]:
    """Bursts of every resource of a run."""
    found: list[dict[str, Any]] = []
    for task in job.run.tasks if job.run is not None else ():
        assert job.run is not None
        for key, series in resource_series(job.run, task).items():
            spans = None if series is None else analyse(series, step_s=step_time_s(job.run, task)).spans
            if spans is None:
                continue
            found.append(_named(_TASKS, f"{task}: bursts of {key}", first))
            for start, end, high in zip(spans.start_s.tolist(), spans.end_s.tolist(), spans.high.tolist(), strict=True):
                if high:
                    found.append(_slice(_TASKS, first, "burst", start, end, {}))
            first += 1
    return found


def _named(pid: int, name: str, tid: int | None = None) -> dict[str, Any]:
    kind = {"name": "process_name"} if tid is None else {"name": "thread_name", "tid": tid}
    return {"ph": "M", "pid": pid, **kind, "args": {"name": name}}


def _slice(pid: int, tid: int, name: str, start_s: float, end_s: float, more: dict[str, Any]) -> dict[str, Any]:
    event = {"ph": "X", "pid": pid, "tid": tid, "cat": "traffic", "name": name}
    return {**event, "ts": _us(start_s), "dur": _us(end_s - start_s), "args": more}


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)
