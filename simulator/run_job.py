"""Simulates one run of a sweep: job.json in, the files of its run directory out."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from driple.contracts.errors import BadInput, RunFailed
from driple.contracts.graph_makers import GRAPH_MAKERS
from driple.contracts.protocol.simulation_messages import Simulated
from driple.contracts.run_dir import RunPaths
from driple.contracts.run_spec import JobSpec, NetworkCondition
from driple.pipeline.graph.public import TrainingStep, read_step, stored_step, write_stored_graph
from driple.simulator.run_files import write_run
from driple.simulator.simulation import simulate_workload
from driple.simulator.training_job import Progress

GRAPH_S = 600.0


def run_job(job: Path, folder: Path, progress: Progress) -> Simulated:
    """Simulates a run; `progress` is called often. Raises BadInput or RunFailed in one line."""
    spec = JobSpec.from_json(json.loads(job.read_bytes()))
    run = spec.run
    condition = run.network
    if condition != NetworkCondition(rate_mbit=condition.rate_mbit):  # a rate is all that the model knows
        wanted = ", ".join(name for name in condition.parts if name != "rate")
        raise BadInput(
            f"{run.id}: network: {wanted}: a simulation has no packet loss, no delay and no congestion control; leave"
            " it out, or measure"
        )
    paths = RunPaths(folder.parent, "", folder.name)
    step = graph_step(spec, job, paths.graph("worker"))
    found = simulate_workload(
        run.workload,
        run.setting,
        step=step,
        together=run.together,
        seed=run.seed,
        rate_mbit=condition.rate_mbit,
        progress=progress,
    )
    sources = write_run(found.job, spec, found.parameters.device.kind, paths)
    versions = {"simulator": metadata.version("driple")}
    versions |= {f"simulator/{name}": sha256[:16] for name, sha256 in found.parameters.hashes.items()}
    rate = found.parameters.link_bytes_per_s
    return Simulated(
        folder=str(folder),
        steps=len(found.job.begun[0]) - 1,
        traffic_sources=sources,
        versions=versions,
        device_kind=found.parameters.device.kind,
        rate_mbit=0.0 if rate is None else rate * 8 / 1e6,
    )


def graph_step(spec: JobSpec, job: Path, path: Path) -> TrainingStep:
    """The training step of a job; also writes its graph file. A graph that is not stored needs the job's framework."""
    run = spec.run
    if write_stored_graph(run.workload, run.setting, path):
        step = stored_step(run.workload, run.setting)
        assert step is not None
        return step
    maker = GRAPH_MAKERS[run.workload.framework]
    if any(find_spec(module) is None for module in maker.modules):
        raise BadInput(
            f"{run.workload.label}: its graph is not stored and is built with {maker.title}, which is not installed"
            f" here: pip install 'driple[{maker.extra}]'"
        )
    command = [sys.executable, "-m", "driple.workloads.cli", "graph", "--job", str(job), "--out", str(path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=GRAPH_S)
    if done.returncode:
        last = ([line for line in done.stderr.splitlines() if line.strip()] or ["no message"])[-1]
        raise (BadInput if done.returncode == BadInput.exit_code else RunFailed)(last)
    return read_step(path, loop_length=run.workload.sequence_length or 1)
