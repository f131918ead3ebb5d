"""How long must a run be? Noise of the targets if runs had ended earlier, computed from longer runs.

    python benchmarks/run_length.py --traces DIR ... --write docs/benchmarks/run-length.md

Takes runs that were repeated at least three times (benchmarks/isolation.py makes such), cuts each after fewer measured
steps, and computes the targets again. A rule that ends runs while they are measured is tried in the same way.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import textwrap
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from pages import machine, parser_of, publish
from results_noise import LEAST, spread

from driple.contracts.metrics import COLUMNS
from driple.pipeline.bursts.task_metrics import task_metrics
from driple.pipeline.traces.align import Steps, common_window
from driple.pipeline.traces.load_run import Run, load_run

LENGTHS = (4, 6, 9, 12, 18)
LEAST_STEPS = 6
GOAL = 2.0
ERRORS_PCT = (1.0, 2.0, 3.0)

Length = Callable[[Run], int]


def fixed(steps: int) -> Length:
    """Every run as long."""
    return lambda run: steps


def until(error_pct: float) -> Length:
    """Ends when the standard error of the mean step time is small enough, in every worker."""

    def steps(run: Run) -> int:
        found = []
        for trace in run.tasks.values():
            if trace.steps is not None:
                times = np.diff(trace.steps.start_s)
                found.append(next((n for n in range(LEAST_STEPS, len(times)) if _error(times[:n]) <= error_pct), 10**6))
        return max(found)

    return steps


def _error(times: Any) -> float:
    return 100 * float(times.std(ddof=1) / np.sqrt(len(times)) / times.mean())


def cut(run: Run, steps: int) -> Run:
    """The run as if it had ended after so many measured steps."""
    kept = {name: _first(trace.steps, steps) for name, trace in run.tasks.items() if trace.steps is not None}
    together = common_window(list(kept.values()))
    tasks = {}
    for name, trace in run.tasks.items():
        if name in kept:
            tasks[name] = replace(trace, steps=kept[name], window=kept[name].window)
        elif together is not None:
            tasks[name] = replace(trace, window=together)
    return replace(run, tasks=tasks)


def _first(steps: Steps, count: int) -> Steps:
    return Steps(steps.step[:count], steps.start_s[:count], steps.end_s[:count])


def measure(traces: Path, lengths: dict[str, Length]) -> dict[str, Any]:
    """By rule: noise of the targets of workers, percent, and seconds of the measured part and of whole runs."""
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for path in sorted(traces.glob("*/*/run.json")):
        run = load_run(path.parent)
        groups[str(run.manifest.run.setting), run.manifest.run.workload.label].append(run)
    groups = {key: runs for key, runs in groups.items() if len(runs) >= LEAST}
    return {rule: _of_rule(groups, length) for rule, length in lengths.items()}


def _of_rule(groups: dict[tuple[str, str], list[Run]], length: Length) -> dict[str, Any]:
    distances, measured, whole, counts = [], [], [], []
    full = cut_s = 0.0
    for runs in groups.values():
        rows = []
        for run in runs:
            short = cut(run, length(run))
            rows.append([task_metrics(short, task).targets for task in short.tasks if task.startswith("worker:")])
            window_s = max(trace.window.duration_s for trace in run.tasks.values())
            short_s = max(trace.window.duration_s for trace in short.tasks.values())
            counts.append(np.mean([len(t.steps.step) for t in short.tasks.values() if t.steps is not None]))
            total_s = (run.manifest.ended_real_s or 0.0) - (run.manifest.started_real_s or 0.0)
            measured.append(short_s)
            whole.append(total_s - window_s + short_s)
            full, cut_s = full + total_s, cut_s + total_s - window_s + short_s
        found = spread([[{column: row.get(column) for column in COLUMNS} for row in run] for run in rows])
        distances += list(found["distance"].values())
    return {
        "runs": len(measured),
        "workloads": len(groups),
        "noise": 100 * float(np.mean(distances)),
        "known": len(distances),
        "steps": float(np.mean(counts)),
        "measured_s": float(np.mean(measured)),
        "run_s": float(np.mean(whole)),
        "factor": full / cut_s,
    }


def page(found: dict[str, dict[str, Any]], today: str) -> str:
    """The page as Markdown."""
    lines = [
        "# Length of runs",
        "",
        "Noise of the targets of workers if runs had ended earlier. Computed with `benchmarks/run_length.py` on "
        f"{today} ({machine()}) from runs of 18 measured steps that were repeated. The rule `until` ends a run after "
        f"at least {LEAST_STEPS} steps, once the standard error of the mean step time of every worker is below the "
        "given share of it. `targets` is the number of pairs of a workload and a target with values in every run.",
    ]
    for traces, rules in found.items():
        first = next(iter(rules.values()))
        whole = rules[f"{max(LENGTHS)} steps"]
        best = max(each["factor"] for each in rules.values() if each["noise"] <= whole["noise"])
        goal = f"Goal: {GOAL:g} x faster at equal noise. {best:.2f} x, {'reached' if best >= GOAL else 'NOT reached'}."
        count = f"{first['workloads']} pairs of a workload and a setting, {first['runs']} runs."
        lines += ["", f"## {traces}", "", f"{count} {goal}", ""]
        lines += ["| rule | steps | noise | targets | measured part | run | faster |", "|---|---|---|---|---|---|---|"]
        lines += [
            f"| {rule} | {each['steps']:.1f} | {each['noise']:.1f} % | {each['known']} | {each['measured_s']:.1f} s | "
            f"{each['run_s']:.1f} s | {each['factor']:.2f} x |"
            for rule, each in rules.items()
        ]
    return "\n".join([*(line if line.startswith(("|", "#")) else textwrap.fill(line, 118) for line in lines), ""])


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--traces", type=Path, nargs="+", required=True, help="folders of runs, one section for each")
    options: argparse.Namespace = parser.parse_args(arguments)
    rules = {f"{steps} steps": fixed(steps) for steps in LENGTHS} | {
        f"until {error:g} %": until(error) for error in ERRORS_PCT
    }
    found = {folder.parent.name: measure(folder, rules) for folder in options.traces}
    publish(found, page(found, datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat()), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
