"""The lab's subset of the traffic study: aggregates of its runs, and the page of results.

    driple-run lab-traffic
    python benchmarks/traffic_study.py --runs traces/lab-traffic --write docs/benchmarks/traffic-study.md
    python benchmarks/traffic_study.py                         the page from the aggregates that are kept

The aggregates, a row for each job and task, are in benchmarks/data/traffic-study.parquet. The page is made of these
alone.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from driple.contracts.run_dir import replacing
from driple.pipeline.traffic.find_jobs import find_jobs
from driple.pipeline.traffic.regression import Fit, regress
from driple.pipeline.traffic.traffic_job import TrafficJob

KEPT = Path("benchmarks/data/traffic-study.parquet")
STUDY = """Zerwas, Aykurt, Schmid, Blenk: Network Traffic Characteristics of
Machine Learning Frameworks Under the Microscope"""
USUAL = "cubic"
KIND = ("variant", "topology")
FINE, COARSE = "10 ms", "100 ms"
GOALS = {"clique": (0.94, 1.03)}
"""Bytes divided by the formula."""
GOAL = (0.99, 1.02)
WITHOUT_GOAL = ("ps", "pair_averaging")

LARGELY, RELATED, SAME_PCT = 2.0, 0.9, 2.0
"""A ratio that counts as a large difference, a share of explained variance, and a difference that counts as none."""

Row = dict[str, Any]


def main() -> int:
    """Makes the aggregates, if runs are given, and prints or writes the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, help="runs of lab-traffic; the aggregates are made of them")
    parser.add_argument("--kept", type=Path, default=KEPT)
    parser.add_argument("--note", default="", help="about the machine during the runs, for the page")
    parser.add_argument("--write", type=Path)
    arguments = parser.parse_args()
    if arguments.runs:
        keep(arguments.kept, arguments.runs, arguments.note)
    page = text(*kept(arguments.kept))
    if arguments.write:
        arguments.write.write_text(page)
    print(page)
    return 0


def keep(path: Path, runs: Path, note: str = "") -> None:
    """Writes the aggregates of runs."""
    found = find_jobs([runs], lambda what, done, total: print(f"{what}: {done} of {total}", file=sys.stderr))
    rows = [row for job in found.jobs for row in aggregates(job)]
    machine = f"{os.cpu_count()} cores, Linux {platform.release()}, Python {platform.python_version()}"
    facts = {
        "machine": machine,
        "date": str(datetime.date.today()),
        "note": note,
        "set_aside": [f"{place.name}: {reason}" for place, reason in found.set_aside],
    }
    table = pa.Table.from_pylist(rows).replace_schema_metadata({"traffic_study": json.dumps(facts)})
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path, "wb") as stream:
        pq.write_table(table, stream, compression="zstd")


def aggregates(job: TrafficJob) -> Iterable[Row]:
    """A row for each task of a job."""
    kind, again, lost = job.kind, job.retransmitted(), job.lost()
    steps = np.concatenate([np.diff(one.start_s) for one in job.steps.values()]) if job.steps else np.array([])
    peaks = {f"peak_to_mean {1000 * bin_s:g} ms": value for bin_s, value in job.burstiness().items()}
    of_job = {
        "job": job.name,
        "variant": kind.variant,
        "model": kind.model,
        "topology": kind.topology,
        "batch_size": kind.batch_size,
        "loss_pct": kind.loss_pct,
        "congestion": kind.congestion,
        "workers": kind.workers,
        "gradient_mb": None if kind.gradient_bytes is None else kind.gradient_bytes / 1e6,
        "step_s": float(np.median(steps)) if len(steps) else None,
        "flows": job.flow_count,
        "flows_of_a_megabyte": sum(row.bytes > 1e6 for row in job.events.flow_facts()),
        "retransmitted_share": None if again is None else again.share,
        "lost_share": None if lost is None else lost.share,
        **peaks,
    }
    formula, relative = job.formula(), job.relative_to_formula()
    for task, sent in job.sent_per_step().items():
        told = formula[task].sent / 1e6 if task in formula else None
        yield {**of_job, "task": task, "sent_mb": sent / 1e6, "formula_mb": told, "relative": relative.get(task)}


def kept(path: Path) -> tuple[list[Row], Row]:
    """The aggregates, and what is known of the machine."""
    table = pq.read_table(path)
    return table.to_pylist(), json.loads(table.schema.metadata[b"traffic_study"])


def text(rows: Sequence[Row], facts: Row) -> str:
    """The page."""
    jobs = list({row["job"]: row for row in rows}.values())
    quiet = [row for row in rows if row["loss_pct"] == 0 and row["congestion"] == USUAL]
    quiet_jobs = [job for job in jobs if job["loss_pct"] == 0 and job["congestion"] == USUAL]
    shown = flows(quiet_jobs)
    aside = "".join(f"- set aside: {one}\n" for one in facts["set_aside"])
    return f"""# The traffic study in the lab

The experiment `lab-traffic` is a subset, for a lab on one machine, of the study of 2021
({STUDY}).
{len(jobs)} jobs, {facts["machine"]}; {facts["date"]}. {facts["note"]}
Reproduce with `driple-run lab-traffic` and
`python benchmarks/traffic_study.py --runs traces/lab-traffic --write docs/benchmarks/traffic-study.md`.
The aggregates are in `benchmarks/data/traffic-study.parquet`.

All tasks share the processors of one machine, so step times are those of a slow cluster. Volumes, flows and matrices do
not depend on that. The models are small, on CIFAR-10 images that are generated; the study trained four larger ones for
20 epochs. Horovod and KungFu are not among the variants: their strategies are, carried by PyTorch (gloo, MPI).
{aside}
Pictures of all jobs: `driple-traffic traces/lab-traffic --figures figures --format png`. Three of them:

![Bytes from each task to each other](traffic-study/fig4-matrix.png)

![Bytes of each flow over time](traffic-study/fig6-load.png)

![Duration over loss](traffic-study/fig10-loss.png)

## Findings

{findings(rows, jobs, quiet, quiet_jobs)}

## Bytes of a step, and the formula of the strategy

Payload that a task sends in a step, divided by the formula; without loss. The goal is 0.99 to 1.02, for the clique 0.94
to 1.03. With parameter servers the formula is that of the variables which the graph places on each server; a server
also sends and receives what is not a gradient. Pair averaging picks its peers at random.

{formulas(quiet)}

## Flows and bursts

Median over jobs without loss. A flow has one direction; most of them are tiny.

{table(("framework", "topology", "flows", "of 1 MB or more", f"peak / mean in {FINE}", f"in {COARSE}"), shown)}

## Loss

Step time with loss, divided by the step without.

{losses(jobs)}

## Batch size

{batches(quiet_jobs)}

## Regression and formula

MB that a worker sends in a step, on average over the workers of a job, predicted for models that were left out. The
regression of the study (size of the model, framework, batch size and topology) is fitted to the other models.

{regression(quiet)}
"""


def findings(rows: Sequence[Row], jobs: Sequence[Row], quiet: Sequence[Row], quiet_jobs: Sequence[Row]) -> str:
    """What the study says, and what these jobs say."""
    told = flows(quiet_jobs)
    counts = [row[2] for row in told]
    bursts = [float(row[4]) for row in told if row[4] != "-"]
    known = [row for row in quiet if row["relative"] is not None]
    good = sum(map(within_goal, known))
    ranges = dict(
        per_kind(known, lambda own: max(row["relative"] for row in own) - min(row["relative"] for row in own))
    )
    calm, wild = min(ranges, key=lambda kind: ranges[kind]), max(ranges, key=lambda kind: ranges[kind])
    fit = regress_mb(per_job(known))
    left_out = held_back(quiet)
    held = statistics.fmean(one[2] for one in left_out), statistics.fmean(one[3] for one in left_out)
    greatest = max(job["loss_pct"] for job in jobs)
    slower = {name: value for name, loss, value, _ in slowdowns(jobs) if loss == greatest}
    change = 100 * change_by_batch(quiet)
    seen = {
        "varies": max(counts) > LARGELY * min(counts),
        "predictable": good > 0 and ranges[wild] > LARGELY * ranges[calm],
        "regression": fit.r_squared > RELATED,
        "loss": max(slower.values()) > LARGELY,
        "batch": change < SAME_PCT,
    }
    is_seen = {name: "confirmed" if value else "not seen here" for name, value in seen.items()}
    return f"""The abstract of the study has three findings; its figures show two more.

- **Traffic can vary largely across frameworks: {is_seen["varies"]}.** The median number of flows of a job goes from
  {min(counts)} to {max(counts)}, the peak-to-mean ratio in bins of {FINE} from {min(bursts):.1f} to {max(bursts):.1f}.
- **Some patterns are well predictable, others less structured: {is_seen["predictable"]}.** Of
  {len(known)} tasks, {good} send what the formula of their strategy says, within its goal. Bytes divided by
  the formula differ by {ranges[calm]:.3f} in {" ".join(calm)}, and by {ranges[wild]:.3f} in {" ".join(wild)}.
- **Traffic can be related to attributes of the job by linear regression: {is_seen["regression"]}.** It explains
  {100 * fit.r_squared:.1f} % of the variance of bytes per step. For models that were left out it errs by
  {held[0]:.0f} % on average, the formula by {held[1]:.1f} %.
- **Loss makes training slower (Fig. 10): {is_seen["loss"]}.** At a loss of {greatest:g} % a step takes, in
  steps without loss: {", ".join(f"{name} {value:.2f}" for name, value in sorted(slower.items()))}.
- **The batch size changes when bytes are sent, not how many (Fig. 9): {is_seen["batch"]}.** Bytes of a worker's step
  differ by at most {change:.1f} % between batch sizes."""


def per_job(rows: Sequence[Row]) -> list[Row]:
    """One row for each job, with the mean of its workers."""
    found: dict[str, list[Row]] = {}
    for row in filter(is_worker, rows):
        found.setdefault(row["job"], []).append(row)
    means = ("sent_mb", "formula_mb")
    return [
        {**own[0], **{name: statistics.fmean(row[name] for row in own) for name in means}} for own in found.values()
    ]


def is_worker(row: Row) -> bool:
    return str(row["task"]).startswith("worker")


def within_goal(row: Row) -> bool:
    low, high = GOALS.get(row["topology"], GOAL)
    return bool(low <= row["relative"] <= high)


def per_kind(rows: Sequence[Row], figure: Callable[[list[Row]], Any]) -> Iterable[tuple[tuple[str, str], Any]]:
    """A figure of the rows of every framework and topology."""
    for kind in sorted({tuple(str(row[name]) for name in KIND) for row in rows}):
        yield (kind[0], kind[1]), figure([row for row in rows if tuple(str(row[name]) for name in KIND) == kind])


def formulas(quiet: Sequence[Row]) -> str:
    """Lowest and highest ratio by framework and topology."""
    lines = []
    for kind, own in per_kind([row for row in quiet if row["relative"] is not None], list):
        ratios = [row["relative"] for row in own]
        good = "-" if kind[1] in WITHOUT_GOAL else "yes" if all(map(within_goal, own)) else "no"
        lines.append((*kind, len({row["job"] for row in own}), f"{min(ratios):.3f}", f"{max(ratios):.3f}", good))
    return table(("framework", "topology", "jobs", "lowest", "highest", "within the goal"), lines)


def flows(jobs: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Medians by framework and topology."""

    def middle(own: Sequence[Row], name: str) -> float | None:
        known = [row[name] for row in own if row[name] is not None]
        return statistics.median(known) if known else None

    return [
        (*kind, round(middle(own, "flows") or 0), round(middle(own, "flows_of_a_megabyte") or 0))
        + tuple(figure(middle(own, f"peak_to_mean {bin_ms}")) for bin_ms in (FINE, COARSE))
        for kind, own in per_kind(jobs, list)
    ]


def slowdowns(jobs: Sequence[Row]) -> list[tuple[str, float, float, Row]]:
    """Series, loss in percent and step divided by that without loss."""
    found = []
    keys = ("variant", "model", "topology", "batch_size", "congestion")
    base = {tuple(job[key] for key in keys): job["step_s"] for job in jobs if job["loss_pct"] == 0}
    for job in sorted(jobs, key=lambda job: job["loss_pct"]):
        kind = tuple(job[key] for key in keys)
        if job["loss_pct"] and base.get(kind):
            name = f"{job['variant']} {job['topology']} {job['congestion']}"
            found.append((name, job["loss_pct"], job["step_s"] / base[kind], job))
    return found


def losses(jobs: Sequence[Row]) -> str:
    """A line for every loss, a column for every series."""
    found = slowdowns(jobs)
    names, steps = sorted({one[0] for one in found}), sorted({one[1] for one in found})
    ratio = {(name, loss): value for name, loss, value, _ in found}
    seen: dict[float, list[float]] = {}
    for _, loss, _, job in found:
        if job["lost_share"] is not None:
            seen.setdefault(loss, []).append(100 * job["lost_share"])
    lines = [
        (f"{loss:g}", f"{statistics.median(seen[loss]):.2f}" if loss in seen else "-")
        + tuple(figure(ratio.get((name, loss))) for name in names)
        for loss in steps
    ]
    return table(("loss in %", "packets seen lost in %", *names), lines)


def batches(jobs: Sequence[Row]) -> str:
    """Step and bursts by batch size, for the kinds that have several."""
    lines = []
    for kind, own in per_kind(jobs, list):
        for model in sorted({job["model"] for job in own}):
            same = sorted((job for job in own if job["model"] == model), key=lambda job: job["batch_size"])
            if len({job["batch_size"] for job in same}) > 1:
                lines += [
                    (*kind, model, job["batch_size"], f"{1000 * job['step_s']:.0f}")
                    + (figure(job[f"peak_to_mean {FINE}"]), figure(job[f"peak_to_mean {COARSE}"]))
                    for job in same
                ]
    return table(
        ("framework", "topology", "model", "batch size", "step in ms", f"peak / mean in {FINE}", f"in {COARSE}"), lines
    )


def change_by_batch(quiet: Sequence[Row]) -> float:
    """The greatest relative difference of a worker's bytes between batch sizes of one kind of job."""
    groups: dict[tuple[Any, ...], dict[int, float]] = {}
    for row in filter(is_worker, quiet):
        key = tuple(row[name] for name in (*KIND, "model", "task"))
        groups.setdefault(key, {})[row["batch_size"]] = row["sent_mb"]
    return max((max(own.values()) / min(own.values()) - 1 for own in groups.values()), default=0.0)


def regress_mb(rows: Sequence[Row]) -> Fit:
    """MB of a worker's step, one row for each job, by size of the model, batch size, framework and topology."""
    return regress(
        [row["sent_mb"] for row in rows],
        {"model_mb": [row["gradient_mb"] for row in rows], "batch_size": [row["batch_size"] for row in rows]},
        {name: [str(row[name]) for row in rows] for name in KIND},
    )


def held_back(quiet: Sequence[Row]) -> list[tuple[str, int, float, float]]:
    """Model, jobs, and the mean relative errors of the regression and of the formula in percent."""
    jobs = per_job([row for row in quiet if row["formula_mb"]])
    found = []
    for model in sorted({row["model"] for row in jobs}):
        test = [row for row in jobs if row["model"] == model]
        value = {one.name: one.value for one in regress_mb([row for row in jobs if row not in test]).coefficients}
        errors = []
        for row in test:
            told = value.get("intercept", 0.0) + value.get("model_mb", 0.0) * row["gradient_mb"]
            told += value.get("batch_size", 0.0) * row["batch_size"]
            told += sum(value.get(f"{name}={row[name]}", 0.0) for name in KIND)
            errors.append(abs(told / row["sent_mb"] - 1))
        by_formula = [abs(row["formula_mb"] / row["sent_mb"] - 1) for row in test]
        found.append((model, len(test), 100 * statistics.fmean(errors), 100 * statistics.fmean(by_formula)))
    return found


def regression(quiet: Sequence[Row]) -> str:
    lines = [(model, n, f"{a:.1f}", f"{b:.2f}") for model, n, a, b in held_back(quiet)]
    return table(("model left out", "jobs", "error of the regression in %", "of the formula in %"), lines)


def figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def table(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> str:
    rows = [head, ["---"] * len(head), *lines]
    return "\n".join("| " + " | ".join(map(str, row)) + " |" for row in rows)


if __name__ == "__main__":
    sys.exit(main())
