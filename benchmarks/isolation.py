"""Isolated hosts: how much repeating a run differs where hosts share processors in different ways.

    python benchmarks/isolation.py --work DIR --measure "paced, bound" --setting cpu-p1w2-1g     measures; resumable
    python benchmarks/isolation.py --work DIR --accounting                                       a busy process
    python benchmarks/isolation.py --work DIR --write docs/benchmarks/isolation.md               the page

Run it on an otherwise idle machine. `--seconds` ends a measurement early; the same command goes on with it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import textwrap
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow.parquet as pq
from pages import machine, parser_of, publish
from results_noise import measure as noise_of

from driple.agents.daemon.control_groups import join_groups
from driple.contracts.manifest import Manifest
from driple.contracts.metrics import NETWORK, TARGETS
from driple.orchestrator.hosts import lab_backend
from driple.orchestrator.lab.lab_client import Lab
from driple.orchestrator.sweep.run_experiment import run
from driple.pipeline.datasets.build import build_dataset

CORES = 0.45
SETTINGS = ("cpu-p1w2-1g", "cpu-p1w2-450m", "cpu-p2w2-1g", "cpu-p2w2-450m")
"""The second of each pair has links that are as much slower as the hosts."""
WORKLOADS: tuple[dict[str, Any], ...] = (
    {"model": "resnet56", "batch_size": 32, "update": "sync"},
    {"model": "resnet20", "batch_size": 32, "update": "sync"},
    {"model": "vgg16", "image_size": 64, "batch_size": 16, "width": 0.25, "update": "async"},
    {"model": "transformer", "sequence_length": 16, "batch_size": 16, "width": 0.125, "update": "sync"},
    {"model": "mobilenet", "image_size": 64, "batch_size": 16, "update": "async"},
    {"model": "inception3", "image_size": 96, "batch_size": 4, "width": 0.25, "update": "sync"},
)
SAMPLING_HZ = 200.0
REST = {"steps": 18, "warmup_steps": 3, "sampling_hz": SAMPLING_HZ, "threads": 1, "timeouts": {"start": "5min"}}
INFO, ACCOUNTS = "machine.json", "accounts.json"
ACCOUNT_S = 4.0


@dataclass(frozen=True)
class Alternative:
    """How hosts share the processors: arguments of Lab.start; none without a share."""

    meaning: str
    share: dict[str, Any]
    keys: dict[str, Any] = field(default_factory=dict)  # more keys of the experiment


def _share(period_us: int, pace_us: int | None, bind: bool) -> dict[str, Any]:
    return {"cores_per_host": CORES, "share_period_us": period_us, "pace_us": pace_us, "bind_hosts": bind}


ALTERNATIVES: dict[str, Alternative] = {
    "none": Alternative("all hosts share all processors", {}),
    "quota 4 ms": Alternative("CFS quota, period 4 ms", _share(4000, None, False)),
    "quota 5 ms": Alternative("CFS quota, period as long as a sample", _share(5000, None, False)),
    "bound": Alternative("the same, each host bound to a processor", _share(5000, None, True)),
    "paced": Alternative("quota of 5 ms, accounted every 0.25 ms", _share(5000, 250, False)),
    "paced, bound": Alternative("the same, each host bound to a processor", _share(5000, 250, True)),
    "paced 0.5 ms, bound": Alternative("accounted every 0.5 ms", _share(5000, 500, True)),
    "none, until 3 %": Alternative("as none; a run ends once its step times are known", {}, {"until": "3%"}),
    "paced, bound, until 3 %": Alternative("the same with shares", _share(5000, 250, True), {"until": "3%"}),
}


def measure(work: Path, name: str, setting: str, workloads: int, repetitions: int, seconds: float) -> None:
    """Runs what is missing of one alternative on one setting, and adds it to its dataset."""
    share, folder = ALTERNATIVES[name].share, _folder(work, name)
    experiment: dict[str, Any] = {
        "name": "isolation",
        "setting": setting,
        "workloads": list(WORKLOADS[:workloads]),
        "repetitions": repetitions,
        **REST,
        **ALTERNATIVES[name].keys,
    }
    if share:
        experiment["cores_per_host"] = CORES
    stop = threading.Event()
    timer = threading.Timer(seconds, stop.set)
    timer.daemon = True
    timer.start()
    with patch.object(lab_backend, "_share", lambda *_: share):
        run(experiment, output=folder / "traces", stop=stop, progress=lambda line: print(line, file=sys.stderr))
    timer.cancel()
    build_dataset(folder / "traces", output=folder / "datasets", jobs=1)
    today = datetime.datetime.now(tz=datetime.timezone.utc).date().isoformat()
    (work / INFO).write_text(json.dumps({"machine": machine(), "date": today}))


def _folder(work: Path, name: str) -> Path:
    return work / name.replace(",", "").replace("%", "pct").replace(" ", "-")


def account(work: Path) -> None:
    """What samples of a busy process show under each alternative."""
    found = {}
    for name, each in ALTERNATIVES.items():
        if each.keys:
            continue
        with Lab.start(hosts=2, **each.share) as lab:
            busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
            try:
                join_groups(busy.pid, lab.share_files("lab1"))
                pacers = [pid for pid in _descendants(lab.supervisor_pid) if _is_pacer(pid)]
                found[name] = _sampled(busy.pid, pacers)
            finally:
                busy.kill()
                busy.wait()
    (work / ACCOUNTS).write_text(json.dumps(found))


def _sampled(pid: int, pacers: Sequence[int]) -> dict[str, float]:
    """Percent of a core in each sample, and what the pacers used."""
    time.sleep(0.5)
    period_s, clock = 1 / SAMPLING_HZ, (~pid << 3) | 2
    due, reads = time.monotonic(), [(time.monotonic(), time.clock_gettime_ns(clock))]
    before = sum(_used_s(each) for each in pacers)
    while len(reads) <= ACCOUNT_S * SAMPLING_HZ:
        due += period_s
        time.sleep(max(0.0, due - time.monotonic()))
        reads.append((time.monotonic(), time.clock_gettime_ns(clock)))
    t_s, used_ns = np.array(reads).T
    share = 100 * np.diff(used_ns) / 1e9 / np.diff(t_s)
    low, high = np.percentile(share, (5, 95))
    pacing = 100 * (sum(_used_s(each) for each in pacers) - before) / float(t_s[-1] - t_s[0])
    return {"mean": float(share.mean()), "sd": float(share.std()), "p5": low, "p95": high, "pacers": pacing}


def _used_s(pid: int) -> float:
    return time.clock_gettime((~pid << 3) | 2)


def _descendants(pid: int) -> list[int]:
    children = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [each for child in children for each in (child, *_descendants(child))]


def _is_pacer(pid: int) -> bool:
    return b"lab.pacer" in Path(f"/proc/{pid}/cmdline").read_bytes()


def figures(work: Path) -> dict[str, Any]:
    """By setting and alternative: noise, bursts of a step, and times."""
    found: dict[str, Any] = {setting: {} for setting in SETTINGS}
    for name in ALTERNATIVES:
        datasets = _folder(work, name) / "datasets"
        noise = noise_of(datasets) if datasets.is_dir() else {}
        for setting in SETTINGS:
            if setting in noise:
                rows = pq.read_table(datasets / f"{setting}.parquet").to_pylist()
                found[setting][name] = {
                    **_noise(noise[setting]),
                    **_bursts(rows, _steps(_folder(work, name) / "traces", setting)),
                    "sync_step": _step_noise(rows),
                    **_times(_folder(work, name) / "traces", setting),
                }
    return found


def _noise(workloads: dict[str, Any]) -> dict[str, Any]:
    """Means over workloads and targets, in percent."""
    by_kind: dict[str, list[float]] = defaultdict(list)
    for name, each in workloads.items():
        for target in TARGETS:
            if target.column in each["distance"]:
                of_network = target.resource is not None and target.resource.kind == NETWORK
                kind = "async" if name.endswith(" async") else "sync_network" if of_network else "sync_cpu"
                by_kind[kind].append(100 * each["distance"][target.column])
    every = [value for values in by_kind.values() for value in values]
    return {
        "workloads": len(workloads),
        "runs": sum(each["runs"] for each in workloads.values()),
        "all": float(np.mean(every)),
        "median": float(np.median(every)),
        **{key: float(np.mean(values)) for key, values in by_kind.items()},
        "by_workload": {
            name: 100 * float(np.mean(list(each["distance"].values()))) for name, each in workloads.items()
        },
    }


def _step_noise(rows: Sequence[dict[str, Any]]) -> float:
    """The same distance for the mean step time of synchronous jobs, percent."""
    times: dict[str, dict[str, float]] = defaultdict(dict)
    for row in rows:
        if row["role"] == "worker" and row["update"] == "sync":
            times[f"{row['model']} {row['batch_size']}"][row["run_id"]] = row["step_s"]
    found = []
    for by_run in times.values():
        known = np.array(list(by_run.values()))
        found += list(np.abs(known - (known.sum() - known) / (len(known) - 1)) / known)
    return 100 * float(np.mean(found))


def _steps(traces: Path, setting: str) -> dict[tuple[str, str], int]:
    """Measured steps by run and task."""
    found = [Manifest.read(path) for path in traces.glob(f"*/{setting}-*/run.json")]
    return {
        (manifest.run_id, task.task): task.steps - manifest.run.measurement.warmup_steps
        for manifest in found
        for task in manifest.tasks
    }


def _bursts(rows: Sequence[dict[str, Any]], steps: dict[tuple[str, str], int]) -> dict[str, Any]:
    """CPU bursts per step of workers of synchronous jobs, and the load beside all runs."""
    per_step = [
        row["gpu_bursts"] / steps[row["run_id"], row["task"]]
        for row in rows
        if row["role"] == "worker" and row["update"] == "sync" and row["gpu_bursts"] is not None
    ]
    return {
        "bursts_mean": float(np.mean(per_step)),
        "bursts_inside": 100 * float(np.mean([0.9 <= value <= 1.1 for value in per_step])),
        "foreign_pct": float(np.mean([row["foreign_cpu_pct"] for row in rows])),
    }


def _times(traces: Path, setting: str) -> dict[str, float]:
    """Mean time of a run, s."""
    found = []
    for path in traces.glob(f"*/{setting}-*/run.json"):
        manifest = Manifest.read(path)
        if manifest.started_real_s is not None and manifest.ended_real_s is not None:
            found.append(manifest.ended_real_s - manifest.started_real_s)
    return {"run_s": float(np.mean(found))}


HEAD = (
    "| hosts | workloads | runs | all targets | TX and RX, sync | CPU, sync | step time, sync | async "
    "| CPU bursts per step "
    "| within 0.9 to 1.1 | other load | run |"
)


FINDINGS = (
    "- A quota alone is enforced at the kernel's tick. The CPU series alternates between nothing and a whole "
    "tick, and shows many bursts per step. Periods of whole samples do not help against that; the pacer does.",
    "- With shares, the step times of synchronous jobs and their bursts on the network repeat better.",
    "- CPU bursts are still the weak point. A host with a share is busy during most of the exchange too, at about "
    "half of its share, so that the two levels of the series are hardly separate: a repetition with one burst per "
    "step may follow one without any idle time. Slower links in proportion help with two servers.",
    "- The one asynchronous workload was noisier with shares on both links of 1 Gbit/s. A run that ended once its step "
    "times were known (`until`) doubled its noise, so that `until` applies to synchronous jobs only.",
    "- The machine was not quiet: other processes used 74 to 122 % of a core (column other load, with samplers and "
    "pacers), though the runs were in a control group of the greatest weight. Repeat this on a quiet machine.",
)
GOAL_PCT = 3.0
SHARED = "paced, bound"


def _goals(found: dict[str, Any]) -> list[str]:
    """The goals of shares, and whether each was reached."""
    lines = []
    for setting, by_name in found.items():
        each = by_name.get(SHARED)
        if each is not None:
            noise, inside = each["all"], each["bursts_inside"]
            lines += [
                f"- {setting}: repeating a run differs by at most {GOAL_PCT:g} % on average over all targets: "
                f"{noise:.1f} %, {'reached' if noise <= GOAL_PCT else 'NOT reached'}.",
                f"- {setting}: 0.9 to 1.1 CPU bursts per step in synchronous jobs: {inside:.0f} % of the workers, "
                f"{'reached' if inside == 100 else 'NOT reached'}.",
            ]
    return lines


def page(found: dict[str, Any], info: dict[str, str], accounts: dict[str, dict[str, float]]) -> str:
    """The page as Markdown."""
    lines = [
        "# Isolated hosts",
        "",
        f"How much the targets of a run differ from those of its repetitions, by how the hosts of the lab share the "
        f"processors. Measured with `benchmarks/isolation.py` on {info['date']}: {info['machine']}.",
        "",
        "The noise is the definition of the [results page](results.md): of each target the mean distance of a run from "
        "the mean of its repetitions, here averaged over workloads and targets of workers. CPU bursts per step are "
        "those of workers of synchronous jobs; bursts that the begin or end of the measured part cuts do not count, so "
        "17 of 18 is usual. 18 steps at 200 Hz. The last column is the mean time of a run.",
    ]
    lines += ["", "## Goals", "", *_goals(found), "", "## Findings of 2026-11-19", "", *FINDINGS]
    for setting, by_name in found.items():
        if not by_name:
            continue
        lines += ["", f"## {setting}", "", HEAD, "|---" * HEAD.count(" | ") + "|---|"]
        for name, each in by_name.items():
            parts = [
                f"{each.get(key, float('nan')):.1f} %"
                for key in ("all", "sync_network", "sync_cpu", "sync_step", "async")
            ]
            lines.append(
                f"| {name} | {each['workloads']} | {each['runs']} | {' | '.join(parts)} | {each['bursts_mean']:.2f} | "
                f"{each['bursts_inside']:.0f} % | {each['foreign_pct']:.0f} % | {each['run_s']:.1f} s |"
            )
        lines += ["", "Noise by workload, all targets:", ""]
        names = sorted({workload for each in by_name.values() for workload in each["by_workload"]})
        lines += [f"| workload | {' | '.join(by_name)} |", "|---" * (len(by_name) + 1) + "|"]
        for workload in names:
            cells = (each["by_workload"].get(workload) for each in by_name.values())
            lines.append(
                f"| {workload} | {' | '.join('-' if value is None else f'{value:.1f} %' for value in cells)} |"
            )
    if accounts:
        lines += [
            "",
            "## A busy process",
            "",
            f"Percent of a core that a process which never waits has in samples of {1000 / SAMPLING_HZ:g} ms, in "
            f"{ACCOUNT_S:g} s. The kernel notices at its tick of 4 ms that a quota is used up, and CPU clocks advance "
            "at it, unless something else wakes up on the processor. The last column is what all pacers use.",
            "",
            "| hosts | mean | standard deviation | 5 % | 95 % | pacers |",
            "|---|---|---|---|---|---|",
        ]
        lines += [
            f"| {name} | {each['mean']:.1f} % | {each['sd']:.1f} | {each['p5']:.0f} % | {each['p95']:.0f} % | "
            f"{each['pacers']:.1f} % |"
            for name, each in accounts.items()
        ]
    lines += ["", "## Alternatives", ""]
    lines += [f"- **{name}**: {each.meaning}." for name, each in ALTERNATIVES.items()]
    return "\n".join([*map(_wrapped, lines), ""])


def _wrapped(line: str) -> str:
    """Prose on lines of limited length; tables and headings as they are."""
    return textwrap.fill(line, 118, subsequent_indent="  " * line.startswith("- ")) if line[:1] not in "|#" else line


def main() -> int:
    parser = parser_of(__doc__)
    parser.add_argument("--work", type=Path, required=True, help="folder of traces and datasets")
    parser.add_argument("--measure", choices=ALTERNATIVES, help="measure this alternative first")
    parser.add_argument("--accounting", action="store_true", help="sample a busy process under each alternative first")
    parser.add_argument("--setting", choices=SETTINGS, default=SETTINGS[0])
    parser.add_argument("--workloads", type=int, default=len(WORKLOADS), metavar="N", help="the first N (%(default)s)")
    parser.add_argument("--repetitions", type=int, default=4, metavar="N", help="of each (%(default)s)")
    parser.add_argument("--seconds", type=float, default=480.0, help="end of a measurement (%(default)s)")
    options: argparse.Namespace = parser.parse_args()
    if options.measure:
        measure(options.work, options.measure, options.setting, options.workloads, options.repetitions, options.seconds)
    if options.accounting:
        account(options.work)
    found, accounts = figures(options.work), options.work / ACCOUNTS
    busy = json.loads(accounts.read_text()) if accounts.exists() else {}
    publish({"runs": found, "busy": busy}, page(found, json.loads((options.work / INFO).read_text()), busy), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
