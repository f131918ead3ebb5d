"""Simulated datasets over real graphs of the zoo: something to try inspectors on where nothing was measured.

    python benchmarks/simulated_zoo.py experiments/lab-p1w2.yaml --graphs /tmp/graphs --out /tmp/simulated \
        --setting cpu-p1w2-1g --setting v100-p2w2-40g

Graphs are extracted once and stay in their folder; the targets come from the cost model of simulated_targets.py.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simulated_targets import write_dataset

from driple.contracts.json_values import from_plain
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.pipeline.graph.public import OpGraph, read_graph
from driple.workloads.graphs import extract
from driple.workloads.runtime.job import job_without_hosts

# A graph names devices of a setting; which one it is changes nothing of a worker's ops.
GRAPHS_OF = Setting.parse("cpu-p1w2-1g")


def main(argv: Sequence[str] | None = None) -> int:
    """Extracts what is missing, then writes a dataset for each setting."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path, help="whose workloads")
    parser.add_argument("--graphs", type=Path, required=True, help="folder of extracted graphs")
    parser.add_argument("--out", type=Path, required=True, help="folder for datasets")
    parser.add_argument("--setting", action="append", default=[], help="may be given several times")
    parser.add_argument("--noise", type=float, default=0.05, help="relative, of every figure (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the noise (%(default)s)")
    parser.add_argument("--jobs", type=int, default=1, help="processes that extract (%(default)s)")
    arguments = parser.parse_args(argv)

    workloads = planned(arguments.experiment)
    missing = {
        name: job_without_hosts(GRAPHS_OF, workload)
        for name, workload in workloads.items()
        if not (arguments.graphs / f"{name}.parquet").exists()
    }
    if missing:
        extract.from_jobs(missing, "worker:0", arguments.graphs, arguments.jobs)
    graphs: dict[Workload, OpGraph] = {
        workload: read_graph(arguments.graphs / f"{name}.parquet") for name, workload in workloads.items()
    }
    for text in arguments.setting:
        path = write_dataset(graphs, Setting.parse(text), arguments.out, noise=arguments.noise, seed=arguments.seed)
        print(f"{path}: {len(graphs)} workloads")
    return 0


def planned(experiment: Path) -> dict[str, Workload]:
    """The workloads of an experiment by their labels."""
    command = [sys.executable, "-m", "driple.orchestrator.cli", str(experiment), "--dry-run", "--json"]
    plan: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    found = [from_plain(Workload, run["workload"]) for run in plan["runs"]]
    return {workload.label: workload for workload in found}


if __name__ == "__main__":
    sys.exit(main())
