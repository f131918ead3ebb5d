"""The report on the traffic of one job: a run with packet files, or captures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from driple.contracts.metrics import NET_TX
from driple.contracts.run_dir import PACKETS
from driple.pipeline.reports.charts import bars, histogram, lines
from driple.pipeline.reports.html import Cell, Html, facts, join, table, tag
from driple.pipeline.reports.number_text import counted, duration, percent, plain, size, with_unit
from driple.pipeline.reports.page_layout import Page, Report, Section, Watch
from driple.pipeline.reports.trace_chart import task_picture
from driple.pipeline.traces.run_index import MANIFEST
from driple.pipeline.traces.series import Series
from driple.pipeline.traffic.capture_job import captures_of
from driple.pipeline.traffic.find_jobs import find_jobs
from driple.pipeline.traffic.traffic_job import TrafficJob

BIN_S = 0.01
_MOST_BINS = 400
_MOST_FLOWS = 500


def traffic_report(inputs: Sequence[Path], root: Path, watch: Watch) -> Report:
    """Raises BadInput if the captures cannot be read."""
    job = find_jobs(inputs, watch).jobs[0]
    sections = [Section("Overview", _overview(job))]
    if job.run is not None:
        sections.append(Section("Traffic, bursts and steps", join(_pictures(job))))
    sections += [
        Section("Throughput", _throughput(job)),
        Section("Pairs", _pairs(job)),
        Section("Flows", _flows(job)),
    ]
    if job.sent_per_step():
        sections.insert(1, Section("Bytes per step", _steps(job)))
    found = {"kind": "traffic", **job.to_json()}
    notes = (*job.notes, *(f"set aside: {path.name}: {reason}" for path, reason in job.set_aside))
    return Report(f"Traffic of {job.name}", sections, found, notes=notes, provenance=job.provenance)


def _overview(job: TrafficJob) -> Html:
    again, lost = job.retransmitted(), job.lost()
    pairs: list[tuple[str, object]] = [
        ("from", job.source),
        ("sent", size(job.best.total)),
        ("time", duration(job.duration_s)),
    ]
    if job.flow_count is not None:
        pairs.append(("flows", job.flow_count))
    if again is not None:
        pairs.append(("sent again", f"{counted(again.segments, 'segment')} ({percent(again.share)})"))
    if lost is not None:
        pairs.append(("lost", percent(lost.share)))
    pairs += [(f"peak-to-mean, {1000 * bin_s:g} ms", plain(value)) for bin_s, value in job.burstiness().items()]
    return facts(pairs)


def _steps(job: TrafficJob) -> Html:
    formula, relative = job.formula(), job.relative_to_formula()
    rows = [
        [
            task,
            Cell(size(sent), sent),
            Cell(size(formula[task].sent), formula[task].sent) if task in formula else "",
            Cell(plain(relative.get(task)), relative.get(task)),
        ]
        for task, sent in job.sent_per_step().items()
    ]
    caption = "What each task sends in a step, and the formula of the strategy"
    return table(caption, ["task", job.provenance, "formula", "ratio"], rows)


def _pictures(job: TrafficJob) -> list[Html]:
    """The first steps of each task, with its traffic from packets above its resources."""
    assert job.run is not None
    sent = _sent_series(job)
    return [
        task_picture(job.run, task, [("Packets sent", sent[task])] if task in sent else ()) for task in job.run.tasks
    ]


def _sent_series(job: TrafficJob) -> Mapping[str, Series]:
    """What packets say that each task sent, on the time axis of the run."""
    start_s, end_s = job.events.span
    rates: dict[str, np.ndarray] = {}
    for (source, _), rate in job.events.pair_throughput(BIN_S, start_s, end_s + BIN_S).items():
        rates[source] = rates.get(source, 0) + rate
    ends = {task: start_s + BIN_S * np.arange(1, len(rate) + 1) for task, rate in rates.items()}
    window = job.window
    found = {task: Series(f"{task}/sent", ends[task], rate, "B/s", NET_TX.kind) for task, rate in rates.items()}
    return {
        task: series if window is None else series.between(window.start_s, window.end_s)
        for task, series in found.items()
    }


def _throughput(job: TrafficJob) -> Html:
    start_s, end_s = job.best.span
    bin_s = max(BIN_S, job.best.resolution_s, (end_s - start_s) / _MOST_BINS)
    rate = job.best.throughput(bin_s, start_s, end_s + bin_s)
    return lines(f"Total in bins of {duration(bin_s)}", [(0, rate.tolist())], with_unit("B/s"), "bin")


def _pairs(job: TrafficJob) -> Html:
    matrix = job.events.matrix()
    names = [f"{source} > {destination}" for source, destination in matrix]
    return bars("Bytes between tasks", names, {"sent": [float(count) for count in matrix.values()]}, size)


def _flows(job: TrafficJob) -> Html:
    found = job.events.flow_facts()
    rows = [
        [
            row.flow.source_task,
            Cell(str(row.flow.source.port), row.flow.source.port),
            row.flow.destination_task,
            Cell(str(row.flow.destination.port), row.flow.destination.port),
            Cell(size(row.bytes), row.bytes),
            Cell(plain(row.start_s), row.start_s),
            Cell(plain(row.end_s), row.end_s),
        ]
        for row in sorted(found, key=lambda row: -row.bytes)[:_MOST_FLOWS]
    ]
    head = ["from", "port", "to", "port", "bytes", "start, s", "end, s"]
    caption = f"{counted(len(found), 'flow')}, the largest first"
    return join(
        [
            tag("div", histogram("Sizes of flows", [float(row.bytes) for row in found], size), class_="grid"),
            table(caption, head, rows, sortable=True),
        ]
    )


def _find(path: Path) -> Sequence[Path]:
    if path.is_dir() and (path / MANIFEST).exists():
        return [path] if (path / PACKETS).is_dir() else []
    return [path] if captures_of(path) else []


PAGE = Page("a run with packets or a pcap file", _find, traffic_report)
