"""Calibrates this machine, and compares simulated with real step times.

    driple-calibrate --name cpu --output devices/cpu.json
    python benchmarks/calibration.py [--devices devices] [--rounds 2] [--json] [--write docs/benchmarks/calibration.md]

The jobs are small members of seven families, on a lab of two hosts that are joined by a link of 1 Gbit/s, with one
thread per op. They run in turn, each once a round; the median of all steps of a job counts. No parameter is fitted to
them. If other work runs on the machine, real steps are longer: the page shows the load, and beside the median the
fastest tenth of the steps, which other work lengthens least.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from pages import machine, parser_of, publish

import driple
from driple.contracts.manifest import Manifest
from driple.contracts.metrics import GPU
from driple.contracts.run_dir import RunPaths
from driple.pipeline.graph.public import read_step
from driple.simulator.op_costs import op_costs
from driple.simulator.parameter_files import OWN
from driple.simulator.simulation import simulate_workload
from driple.simulator.training_job import CPU

WORKLOADS: tuple[dict[str, Any], ...] = (
    {"model": "resnet20", "batch_size": 32},
    {"model": "resnet50", "batch_size": 16, "width": 0.25, "image_size": 64},
    {"model": "densenet40_k12", "batch_size": 4},
    {"model": "alexnet", "dataset": "cifar10", "batch_size": 16, "width": 0.5},
    {"model": "vgg11", "batch_size": 16, "width": 0.25, "image_size": 64},
    {"model": "mobilenet", "batch_size": 16, "width": 0.5, "image_size": 64},
    {"model": "googlenet", "batch_size": 16, "width": 0.5, "image_size": 64},
    {"model": "transformer", "batch_size": 16, "width": 0.25, "sequence_length": 16},
)
STEPS, WARMUP = 15, 3
GOAL_PCT = 20.0
LOADED = 0.5
"""A larger load average before the first job is other work."""


@dataclass(frozen=True)
class Comparison:
    """One workload."""

    label: str
    measured_s: float
    fastest_s: float
    """The tenth percentile of the steps."""
    simulated_s: float
    ops_s: float
    """Of the simulated step, what its ops take alone."""
    measured_cpu_s: float
    """Processor seconds of the worker per step, which other work on the machine hardly changes."""
    simulated_cpu_s: float

    @property
    def ratio(self) -> float:
        return self.simulated_s / self.measured_s


def measured_runs(folder: Path, rounds: int) -> list[Path]:
    """Directories of the sealed runs."""
    experiment = {
        "name": "calibration",
        "setting": "cpu-p1w1-1g",
        "hosts": "lab",
        "workloads": [dict(one) for one in WORKLOADS],
        "steps": STEPS,
        "warmup_steps": WARMUP,
        "repetitions": rounds,
        "threads": 1,
    }
    result = driple.run(experiment, output=folder)
    return [Path(str(run.directory)) for run in result.runs if run.status == "sealed"]


def compare(runs: list[Path]) -> list[Comparison]:
    """One row for each workload."""
    by_label: dict[str, list[Path]] = {}
    for run in runs:
        by_label.setdefault(Manifest.read(run / "run.json").run.workload.label, []).append(run)
    return [_compared(label, own) for label, own in by_label.items()]


def _compared(label: str, runs: list[Path]) -> Comparison:
    times = [t for run in runs for t in _step_times(run)]
    spec = Manifest.read(runs[0] / "run.json").run
    graph = RunPaths(runs[0].parent.parent, runs[0].parent.name, runs[0].name).graph("worker")
    step = read_step(graph, loop_length=spec.workload.sequence_length or 1)
    found = simulate_workload(spec.workload, spec.setting, step=step, together=spec.together, seed=spec.seed)
    ops_s = float(op_costs(step, found.parameters.device).wall_s.sum())
    begun = found.job.begun[0]
    line = found.job.of_task("worker:0", CPU)
    used = float(np.diff(line.until(begun[[1, -1]]))[0]) / (len(begun) - 2)
    measured_cpu_s = statistics.median(_processor_s(run) for run in runs)
    fastest_s = float(np.percentile(times, 10))
    return Comparison(label, statistics.median(times), fastest_s, found.job.step_s, ops_s, measured_cpu_s, used)


def _step_times(run: Path) -> list[float]:
    table = pq.read_table(run / "steps" / "worker-0.parquet").to_pylist()[WARMUP:]
    return [(row["end_mono_ns"] - row["start_mono_ns"]) / 1e9 for row in table]


def _processor_s(run: Path) -> float:
    """Per step, between the first and the last measured one."""
    steps = pq.read_table(run / "steps" / "worker-0.parquet").to_pylist()[WARMUP:]
    trace = pq.read_table(run / "trace" / "worker-0.parquet", columns=["t_mono_ns", GPU.cpu_column]).to_pylist()
    first, last = steps[0]["start_mono_ns"], steps[-1]["end_mono_ns"]
    inside = [
        row[GPU.cpu_column] for row in trace if first <= row["t_mono_ns"] <= last and row[GPU.cpu_column] is not None
    ]
    return float(inside[-1] - inside[0]) / 1e9 / len(steps)


def page(rows: list[Comparison], about: Mapping[str, Any]) -> str:
    """The page."""
    errors = [100 * abs(row.ratio - 1) for row in rows]
    within = sum(error <= GOAL_PCT for error in errors)
    reached = "" if within == len(rows) else " NOT reached."
    lines = [
        "# Calibration",
        "",
        "Simulated and real step times on one machine. The simulated ones follow from `driple-calibrate --name cpu` and"
        " the graphs; no parameter was fitted to these jobs.",
        "",
        f"cpu-p1w1-1g in a lab, one thread per op: {about['machine']}, {about['date']}; load average before and after:"
        f" {about['load_before']:.1f}, {about['load_after']:.1f} on {about['cores']} cores."
        f" {about['loaded']}{about['device']}"
        " Reproduce with `python benchmarks/calibration.py --write docs/benchmarks/calibration.md`; its docstring"
        " describes the method.",
        "",
        f"Goal: an error of at most {GOAL_PCT:g} % for each model. {within} of {len(rows)} are within.{reached} Mean"
        f" {statistics.fmean(errors):.1f} %, median {statistics.median(errors):.1f} %.",
        "",
        "| workload | measured s, median | fastest tenth | simulated s | of it, ops s | simulated / median |"
        " simulated / fastest tenth | worker's processor s, measured | simulated |",
        "|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {row.label} | {row.measured_s:.3f} | {row.fastest_s:.3f} | {row.simulated_s:.3f} | {row.ops_s:.3f} |"
            f" {row.ratio:.2f} | {row.simulated_s / row.fastest_s:.2f} | {row.measured_cpu_s:.3f} |"
            f" {row.simulated_cpu_s:.3f} |"
            for row in rows
        ),
        "",
    ]
    wrapped = (textwrap.fill(line, 118) if line[:1] not in ("", "|", "#") else line for line in lines)
    return "\n".join(wrapped)


def main() -> None:
    """Runs the jobs, or takes runs of before."""
    parser = parser_of(__doc__)
    parser.add_argument("--devices", type=Path, default=Path("devices"), help="folder with cpu.json (default: devices)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--runs", type=Path, help="take the runs of this folder instead of measuring")
    arguments = parser.parse_args()
    os.environ[OWN] = str(arguments.devices)
    before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        if arguments.runs is None:
            runs = measured_runs(Path(folder), arguments.rounds)
        else:
            runs = sorted(path.parent for path in arguments.runs.glob("*/*/run.json"))
        rows = compare(runs)
    content = json.loads((arguments.devices / "cpu.json").read_text())
    about = {
        "machine": machine(),
        "date": date.today().isoformat(),
        "load_before": before,
        "load_after": os.getloadavg()[0],
        "cores": os.cpu_count(),
        "loaded": "Other work ran on the machine. " if before > LOADED else "",
        "device": " ".join(content["notes"]),
    }
    result = {"about": about, "rows": [vars(row) for row in rows]}
    publish(result, page(rows, about), arguments)


if __name__ == "__main__":
    main()
