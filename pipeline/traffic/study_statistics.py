"""Tables of the traffic study with confidence intervals: mean throughputs, and the regression of bytes per step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from driple.contracts.errors import BadInput
from driple.pipeline.traces.series import FloatArray
from driple.pipeline.traffic.regression import mean_interval, regress
from driple.pipeline.traffic.study_table import Jobs, Row, StudyTable
from driple.pipeline.traffic.traffic_events import Events
from driple.pipeline.traffic.traffic_job import JobKind, TrafficJob

COARSE_S = 1.0
"""Bins over which tables I and II average, and of the table of throughput."""
_TITLE = "MB per worker and step, by least squares, with 95 % intervals"

Rates = Callable[[TrafficJob], Sequence[float]]
"""Throughput of a job in Mbit/s in bins of COARSE_S."""


def _total(job: TrafficJob) -> Sequence[float]:
    start_s, end_s = _whole_bins(job.measured)
    return _mbit(job.measured.throughput(COARSE_S, start_s, end_s)) if end_s > start_s else ()


def _busiest_pair(job: TrafficJob) -> Sequence[float]:
    """Of the pair that sends most. Empty if pairs are not known."""
    window, events = job.window, job.events
    events = events if window is None else events.between(window.start_s, window.end_s)
    start_s, end_s = _whole_bins(events)
    if end_s <= start_s or events.resolution_s > COARSE_S:
        return ()
    return _mbit(max(events.pair_throughput(COARSE_S, start_s, end_s).values(), key=lambda rate: float(rate.sum())))


def _whole_bins(events: Events) -> tuple[float, float]:
    start_s, end_s = events.span
    return start_s, start_s + float(np.floor((end_s - start_s) / COARSE_S)) * COARSE_S


def _mbit(rates: FloatArray) -> list[float]:
    found: list[float] = (rates * 8e-6).tolist()
    return found


def _means(
    name: str, title: str, rates_of: Rates, key: Callable[[JobKind], Row], columns: tuple[str, ...]
) -> Callable[[Jobs], StudyTable]:
    def make(jobs: Jobs) -> StudyTable:
        groups: dict[Row, list[float]] = {}
        for job in jobs:
            if job.kind.model:
                groups.setdefault(key(job.kind), []).extend(rates_of(job))
        rows = []
        for kind, rates in sorted(groups.items(), key=str):
            found = mean_interval(rates)
            if found is not None:
                rows.append((*kind, found[0], found[0] - found[1], found[0] + found[1], len(rates)))
        return StudyTable(name, title, (*columns, "mean_mbit", "low_mbit", "high_mbit", "bins"), tuple(rows))

    return make


by_variant = _means(
    "table1-throughput",
    "Mean throughput of all tasks by model and framework, with 95 % intervals",
    _total,
    lambda kind: (kind.model, kind.variant, kind.topology, kind.batch_size, kind.loss_pct),
    ("model", "variant", "topology", "batch_size", "loss_pct"),
)
by_backend = _means(
    "table2-throughput",
    "Mean throughput of one pair by framework and backend, with 95 % intervals",
    _busiest_pair,
    lambda kind: (kind.model, kind.framework, kind.backend, kind.topology, kind.batch_size, kind.loss_pct),
    ("model", "framework", "backend", "topology", "batch_size", "loss_pct"),
)


def regression(jobs: Jobs) -> StudyTable:
    """MB that a worker sends in a step, by size of the model, framework, batch size and topology; without loss.

    What is sent again after a loss is not explained by any of them.
    """
    rows: Iterable[Row] = ()
    known = [job for job in jobs if job.kind.gradient_bytes and job.kind.batch_size and not job.kind.loss_pct]
    usable = [job for job in known if _worker_mb(job)]
    try:
        fit = regress(
            [_worker_mb(job) or 0.0 for job in usable],
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


def _worker_mb(job: TrafficJob) -> float | None:
    """Mean of the workers; None if their steps or addresses are not known. Others on the link are not workers."""
    workers = [task for task in job.formula() or job.steps if not task.startswith("ps:")]
    sent = job.sent_per_step()
    known = [sent[task] for task in workers if task in sent]
    return float(np.mean(known)) / 1e6 if known else None
