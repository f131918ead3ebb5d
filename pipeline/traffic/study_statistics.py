"""Tables of the traffic study with confidence intervals: mean throughputs, and the regression of bytes per step."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from driple.contracts.errors import BadInput
from driple.pipeline.traffic.regression import mean_interval, regress
from driple.pipeline.traffic.study_table import Jobs, Row, StudyTable
from driple.pipeline.traffic.traffic_job import TrafficJob

COARSE_S = 1.0
"""Bins over which tables I and II average."""
_TITLE = "MB per worker and step, by least squares, with 95 % intervals"


def _means(
    name: str, title: str, key: Callable[[TrafficJob], Row], columns: tuple[str, ...]
) -> Callable[[Jobs], StudyTable]:
    def make(jobs: Jobs) -> StudyTable:
        groups: dict[Row, list[float]] = {}
        for job in jobs:
            start_s, end_s = job.measured.span
            whole = np.floor((end_s - start_s) / COARSE_S) * COARSE_S
            if job.kind.model and whole:
                rates = job.measured.throughput(COARSE_S, start_s, start_s + whole)
                groups.setdefault(key(job), []).extend((rates * 8e-6).tolist())
        rows = []
        for kind, rates in sorted(groups.items(), key=str):
            found = mean_interval(rates)
            if found is not None:
                rows.append((*kind, found[0], found[0] - found[1], found[0] + found[1], len(rates)))
        return StudyTable(name, title, (*columns, "mean_mbit", "low_mbit", "high_mbit", "bins"), tuple(rows))

    return make


by_variant = _means(
    "table1-throughput",
    "Mean throughput by model and framework, with 95 % intervals",
    lambda job: (job.kind.model, job.kind.variant, job.kind.topology),
    ("model", "variant", "topology"),
)
by_batch = _means(
    "table2-throughput",
    "Mean throughput by model and batch size, with 95 % intervals",
    lambda job: (job.kind.model, job.kind.variant, job.kind.batch_size),
    ("model", "variant", "batch_size"),
)


def regression(jobs: Jobs) -> StudyTable:
    """MB that a worker sends in a step, by size of the model, framework, batch size and topology."""
    rows: Iterable[Row] = ()
    usable = [job for job in jobs if job.sent_per_step() and job.kind.gradient_bytes and job.kind.batch_size]
    try:
        fit = regress(
            [_worker_mb(job) for job in usable],
            {
                "model_mb": [(job.kind.gradient_bytes or 0.0) / 1e6 for job in usable],
                "batch_size": [job.kind.batch_size or 0 for job in usable],
            },
            {"variant": [job.kind.variant for job in usable], "topology": [str(job.kind.topology) for job in usable]},
        )
        rows = [(*one, fit.rows, fit.freedom, fit.r_squared) for one in fit.coefficients]
    except BadInput:
        pass  # too few jobs
    columns = ("coefficient", "value", "low", "high", "rows", "degrees_of_freedom", "r_squared")
    return StudyTable("regression", _TITLE, columns, tuple(rows))


def _worker_mb(job: TrafficJob) -> float:
    sent = [value for task, value in job.sent_per_step().items() if not task.startswith("ps:")]
    return float(np.mean(sent)) / 1e6
