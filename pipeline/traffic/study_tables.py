"""The figures and tables of the published traffic study as plain tables, for whatever jobs there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from driple.contracts.formats.dataset import joined_provenance
from driple.pipeline.traffic.study_statistics import COARSE_S, by_backend, by_variant, regression
from driple.pipeline.traffic.study_table import Jobs, Row, StudyTable
from driple.pipeline.traffic.traffic_events import BINS_S, PIECE_S, Events, TaskFlow, flow_size_cdf
from driple.pipeline.traffic.traffic_job import TrafficJob

FINE_S = 0.01
"""Bins of throughput in figures 7 and 9."""
SPAN_S = 0.25
"""Part of a job that figures 7 and 9 show."""
PIECES_S = (PIECE_S, 1.0, 0.1)
FEWEST_PIECES = 20
"""In figure 6. The study's pieces are too long for a short job."""
_NEARLY = 1.2  # a sampler at 100 Hz has some periods that are a little longer than 10 ms


def study_tables(jobs: Jobs, bins_s: Sequence[float] = (COARSE_S,)) -> list[StudyTable]:
    """All tables that have rows; `bins_s` are those of the table of throughput."""
    provenance = joined_provenance(job.provenance for job in jobs)
    found = [*(make(jobs) for make in _TABLES), throughput(jobs, bins_s)]
    return [replace(table, provenance=provenance) for table in found if table.rows]


def _volumes(jobs: Jobs) -> StudyTable:
    rows = [
        (job.name, job.kind.variant, job.kind.model, job.kind.batch_size, job.kind.topology, job.kind.loss_pct)
        + (task, sent, job.best.received().get(task) if job.interface is None else None)
        for job in jobs
        for task, sent in job.best.sent().items()
    ]
    columns = ("job", "variant", "model", "batch_size", "topology", "loss_pct", "task", "bytes_sent", "bytes_received")
    return StudyTable("volumes", "Bytes of each task", columns, tuple(rows))


def _model_volume(jobs: Jobs) -> StudyTable:
    rows = [
        (job.kind.model, job.kind.variant, job.kind.topology, job.kind.batch_size, job.best.total / 1e9, _mb(job))
        for job in jobs
        if job.kind.model
    ]
    columns = ("model", "variant", "topology", "batch_size", "sent_gb", "model_mb")
    return StudyTable("fig3-volume", "Bytes sent by model and framework", columns, tuple(sorted(rows, key=str)))


def _matrix(jobs: Jobs) -> StudyTable:
    rows = [
        (job.name, job.kind.variant, job.kind.topology, source, destination, count)
        for job in jobs
        for (source, destination), count in job.events.matrix().items()
    ]
    columns = ("job", "variant", "topology", "source", "destination", "bytes")
    return StudyTable("fig4-matrix", "Bytes from each task to each other", columns, tuple(rows))


def _flow_counts(jobs: Jobs) -> StudyTable:
    rows = [
        (job.name, job.kind.variant, job.kind.model, job.kind.topology, job.flow_count)
        for job in jobs
        if job.flow_count is not None
    ]
    columns = ("job", "variant", "model", "topology", "flows")
    return StudyTable("fig5-flows", "Number of flows", columns, tuple(rows))


def _flows(jobs: Jobs) -> StudyTable:
    rows: list[Row] = []
    for job in jobs:
        facts = job.events.flow_facts()
        sizes, share = flow_size_cdf(facts)
        for row in facts:
            smaller = float(share[np.searchsorted(sizes, row.bytes, side="right") - 1])
            rows.append((job.name, *_ends(row.flow), row.flow.protocol, row.bytes, row.start_s, row.end_s, smaller))
    ends = ("source", "source_port", "destination", "destination_port")
    columns = ("job", *ends, "protocol", "bytes", "start_s", "end_s", "size_cdf")
    return StudyTable("flows", "Every flow with its size, start and end", columns, tuple(rows))


def _ends(flow: TaskFlow) -> Row:
    return flow.source_task, flow.source.port, flow.destination_task, flow.destination.port


def _load(jobs: Jobs) -> StudyTable:
    rows: list[Row] = []
    for job in jobs:
        start_s, end_s = job.events.span
        piece_s = next((one for one in PIECES_S if (end_s - start_s) / one >= FEWEST_PIECES), PIECES_S[-1])
        load = job.events.load(piece_s)
        kind = (job.name, job.kind.variant, job.kind.topology)
        for number, flow in enumerate(job.events.flows):
            for piece in np.flatnonzero(load[number]).tolist():
                rows.append((*kind, *_ends(flow), start_s + piece * piece_s, piece_s, int(load[number, piece])))
    ends = ("source", "source_port", "destination", "destination_port")
    columns = ("job", "variant", "topology", *ends, "start_s", "piece_s", "bytes")
    return StudyTable("fig6-load", "Bytes of each flow in pieces of time", columns, tuple(rows))


def fine_events(job: TrafficJob) -> Events | None:
    """The record of a job that resolves 10 ms: of pairs if packets or flow tables do, else of interfaces."""
    for events in (job.events, job.interface):
        if events is not None and events.resolution_s <= FINE_S * _NEARLY:
            return events
    return None


def _fine(job: TrafficJob) -> dict[tuple[str, str], Any]:
    """Bytes per second of each pair in a short part of the measured time."""
    events = fine_events(job)
    if events is None or not len(events.t_s):
        return {}
    start_s = events.span[0] if job.window is None else job.window.start_s
    return {
        pair: rate for pair, rate in events.pair_throughput(FINE_S, start_s, start_s + SPAN_S).items() if rate.any()
    }


def _pairs(jobs: Jobs) -> StudyTable:
    rows = [
        (
            job.name,
            job.kind.variant,
            job.kind.topology,
            source,
            destination,
            round(1000 * FINE_S * i),
            float(value) / 1e6,
        )
        for job in jobs
        for (source, destination), rate in _fine(job).items()
        for i, value in enumerate(rate)
    ]
    columns = ("job", "variant", "topology", "source", "destination", "t_ms", "mb_per_s")
    return StudyTable("fig7-pairs", f"Throughput of pairs in bins of {1000 * FINE_S:g} ms", columns, tuple(rows))


def _learned(jobs: Jobs) -> StudyTable:
    rows: list[Row] = []
    for job in jobs:
        if job.learned:
            t_s = np.array([t for t, _ in job.learned])
            sent = np.r_[0, np.cumsum(job.best.bytes)][np.searchsorted(job.best.t_s, t_s)]
            for (_, value), count in zip(job.learned, sent.tolist(), strict=True):
                kind = (job.name, job.kind.variant, job.kind.model, job.kind.batch_size)
                rows.append((*kind, job.learned_what, count / 1e9, value))
    columns = ("job", "variant", "model", "batch_size", "measure", "sent_gb", "value")
    return StudyTable("fig8-learning", "Accuracy (or loss) over bytes sent", columns, tuple(rows))


def _batches(jobs: Jobs) -> StudyTable:
    rows: list[Row] = []
    for job in jobs:
        if job.kind.batch_size is None:
            continue
        rates = _fine(job)
        if rates:
            (source, destination), rate = max(rates.items(), key=lambda item: float(item[1].sum()))
            kind = (job.kind.variant, job.kind.model, job.kind.topology, job.kind.batch_size)
            head = (job.name, *kind, source, destination)
            rows += [(*head, round(1000 * FINE_S * i), float(value) / 1e6) for i, value in enumerate(rate)]
    columns = ("job", "variant", "model", "topology", "batch_size", "source", "destination", "t_ms", "mb_per_s")
    return StudyTable("fig9-batches", "Throughput of one pair by batch size", columns, tuple(rows))


def _loss(jobs: Jobs) -> StudyTable:
    groups: dict[Row, list[TrafficJob]] = {}
    for job in jobs:
        if job.kind.loss_pct is not None:
            kind = (job.kind.variant, job.kind.model, job.kind.topology, job.kind.batch_size, job.kind.congestion)
            groups.setdefault(kind, []).append(job)
    rows: list[Row] = []
    for kind, group in sorted(groups.items(), key=str):
        times = {job.name: _time_of_work(job) for job in group}
        least = min(times.values())
        for job in sorted(group, key=lambda job: (job.kind.loss_pct or 0.0, job.name)):
            again, lost = job.retransmitted(), job.lost()
            shares = (None if again is None else again.share, None if lost is None else lost.share)
            relative = times[job.name] / least if least else None
            rows.append((*kind, job.kind.loss_pct, times[job.name], relative, *shares))
    seen = ("retransmitted_share", "lost_share")
    columns = ("variant", "model", "topology", "batch_size", "congestion", "loss_pct", "seconds", "relative", *seen)
    return StudyTable("fig10-loss", "Duration by loss, divided by the smallest", columns, tuple(rows))


def _time_of_work(job: TrafficJob) -> float:
    """Time of a step, which does not depend on how many were measured; else of the job."""
    return job.duration_s / job.step_count if job.step_count else job.duration_s


def _bursts(jobs: Jobs) -> StudyTable:
    rows = [(job.name, job.kind.variant, *(job.burstiness()[bin_s] for bin_s in BINS_S)) for job in jobs]
    columns = ("job", "variant", *(f"{1000 * bin_s:g}_ms" for bin_s in BINS_S))
    return StudyTable("burstiness", "Peak-to-mean of the total by size of bin", columns, tuple(rows))


def throughput(jobs: Jobs, bins_s: Sequence[float]) -> StudyTable:
    """Throughput of all tasks together (without names of tasks) and of each pair, in bins of these sizes."""
    rows: list[Row] = []
    for job in jobs:
        start_s = min((float(events.t_s[0]) for events in (job.best, job.events) if len(events.t_s)), default=0.0)
        for bin_s in bins_s:
            for events, by_pair in ((job.best, False), (job.events, True)):
                if len(events.t_s) and events.resolution_s <= bin_s * _NEARLY:
                    pairs = events.pairs if by_pair else [(None, None)]
                    filled = events.filled_bins(bin_s, start_s, by_pair=by_pair)
                    rows += [
                        (job.name, bin_s, *pairs[pair], start_s + number * bin_s, count / bin_s)
                        for pair, number, count in zip(*(part.tolist() for part in filled), strict=True)
                    ]
    columns = ("job", "bin_s", "source", "destination", "start_s", "bytes_per_s")
    return StudyTable("throughput", "Throughput in bins in which something was sent", columns, tuple(rows))


def _step_bytes(jobs: Jobs) -> StudyTable:
    rows = [
        (job.name, job.kind.variant, job.kind.model, job.kind.topology, task, sent)
        + (job.formula()[task].sent if task in job.formula() else None, job.relative_to_formula().get(task), job.source)
        for job in jobs
        for task, sent in job.sent_per_step().items()
    ]
    columns = ("job", "variant", "model", "topology", "task", "sent_per_step", "formula", "relative", "source")
    return StudyTable(
        "step-bytes", "Bytes of each task in a step, and the formula of the strategy", columns, tuple(rows)
    )


def _mb(job: TrafficJob) -> float | None:
    return None if job.kind.gradient_bytes is None else job.kind.gradient_bytes / 1e6


_TABLES: tuple[Callable[[Jobs], StudyTable], ...] = (
    *(_volumes, _step_bytes, _flows, _bursts),
    *(_model_volume, _matrix, _flow_counts, _load, _pairs, _learned, _batches, _loss),
    *(by_variant, by_backend, regression),
)
