"""Reads a run directory."""

from __future__ import annotations

from dataclasses import replace

from driple.contracts.errors import BadInput, CorruptRun
from driple.contracts.formats.dataset import MEASURED, SIMULATED
from driple.contracts.metrics import RESOURCES
from driple.pipeline.bursts.task_metrics import resource_series, step_time_s
from driple.pipeline.readers.base import Reader, Source, TraceInput
from driple.pipeline.traces.load_run import load_run


def _read(given: TraceInput) -> Source:
    try:
        run = load_run(given.without_columns("a run"))
    except CorruptRun as error:
        raise BadInput(str(error)) from None
    found, steps, notes = [], {}, []
    for task, trace in run.tasks.items():
        step_s = step_time_s(run, task)
        for key, series in resource_series(run, task).items():
            if series is None:
                continue
            name = f"{task}/{key}"
            found.append(replace(series, name=name))
            if step_s is not None:
                steps[name] = step_s
        if trace.steps is not None and step_s is not None:
            notes.append(f"{task}: {len(trace.steps.step)} measured steps of {step_s:.4g} s")
        notes += [f"{task}: {flag}" for flag in trace.flags]
    missing = [r.title for r in RESOURCES if not any(s.name.endswith(f"/{r.key}") for s in found)]
    if missing:
        notes.append(f"not measured: {', '.join(missing)}")
    provenance = SIMULATED if run.manifest.is_simulated else MEASURED
    return Source(f"run {run.manifest.run_id}", tuple(found), steps, tuple(notes), provenance)


READER = Reader(lambda given: given.path.is_dir(), _read)
