"""PyTorch jobs of real processes on loopback: topologies agree, workers learn, and faults end them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from local_jobs import COMMAND, MakeFolder, WarmHost, again, free_ports, kill, make_job

from driple.contracts.run_spec import JobSpec

pytestmark = pytest.mark.integration
WORKERS = ("worker:0", "worker:1", "worker:2")


def torch_job(topology: str = "ring", workers: int = 3, **options: Any) -> JobSpec:
    more: dict[str, Any] = {"framework": "torch", "size": 16, "batch": 4, **options}
    if "strategy" not in more:
        more["topology"] = topology
    return make_job(f"cpu-p0w{workers}-1g", "lenet", **more)


def averaging(**options: Any) -> JobSpec:
    return torch_job(strategy="pair_averaging", update="async", **options)


TRAIN = """
import json, os, sys
from dataclasses import replace
from pathlib import Path
import torch
import torch.distributed as dist
from driple.contracts.run_spec import JobSpec
from driple.contracts.strategy import TOPOLOGIES
from driple.workloads.collectives.base import Link
from driple.workloads.torch_jobs.data_parallel import data_parallel, hook_of, messages_of
from driple.workloads.torch_jobs.training import Training

port, folder, backends = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
job = JobSpec.from_json(json.loads((folder / "job.json").read_text()))
workers = job.run.setting.workers
rank, children = 0, []
for other in range(1, workers):  # what is imported is shared
    pid = os.fork()
    if pid == 0:
        rank, children = other, []
        break
    children.append(pid)
store = dist.TCPStore("127.0.0.1", port, is_master=rank == 0, wait_for_workers=False)
dist.init_process_group("gloo", store=store, rank=rank, world_size=workers)
together = (("worker:0", "worker:1"), ("worker:2",), ("worker:3",))
runs = {
    f"{backend} {name}": replace(job.run, workload=replace(job.run.workload, topology=name, backend=backend))
    for backend in backends
    for name in TOPOLOGIES
}
runs |= {f"{backend} two on a machine": replace(runs[f"{backend} tree"], together=together) for backend in backends}
for name, run in runs.items():
    training = Training(replace(job, run=run), rank, torch.device("cpu"))
    hook = hook_of(run, messages_of(run, Link("127.0.0.1", "lo")))
    assert hook is None or f"{run.workload.backend} {hook.collective.name}" in runs
    model = data_parallel(training, hook)
    for _ in range(5):
        training.backward(model)
        training.optimiser.step()
    weights = torch.cat([weight.detach().flatten() for weight in training.model.parameters()])
    torch.save(weights, folder / f"{name}-{rank}.pt")
dist.barrier()
for pid in children:
    assert os.waitpid(pid, 0)[1] == 0
"""


def test_every_topology_leaves_the_weights_of_data_parallel_training(tmp_path: Path) -> None:
    # 4.2 MB of gradients, so that a bucket has several chunks
    job = torch_job(workers=4, size=32, width=0.6, optimiser="adam", batch=2)
    apart = replace(job.run, together=tuple((task,) for task in job.run.setting.tasks))
    (tmp_path / "job.json").write_text(json.dumps(replace(job, run=apart).to_json()))
    (port,) = free_ports(1)
    backends = ["gloo", *(["mpi"] if find_spec("mpi4py") else [])]
    command = [sys.executable, "-c", TRAIN, str(port), str(tmp_path), *backends]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-2000:]
    expected = torch.load(tmp_path / "gloo ring-0.pt")
    for backend in backends:
        for topology in ("ring", "star", "tree", "binary_tree_star", "clique", "two on a machine"):
            for rank in range(4):
                found = torch.load(tmp_path / f"{backend} {topology}-{rank}.pt")
                assert (found - expected).abs().max() < 1e-6, (backend, topology)


@pytest.mark.parametrize(
    "job",
    [torch_job("clique", steps=80, size=32, batch=8), averaging(steps=80, size=32, batch=8)],
    ids=["clique", "pair_averaging"],
)
def test_workers_learn_and_say_what_they_used(warm_torch: WarmHost, folder: MakeFolder, job: JobSpec) -> None:
    done = folder(again(job))
    assert set(warm_torch.run(done).values()) == {0}, [done.last_words(worker) for worker in WORKERS]
    for worker in WORKERS:
        steps = done.steps(worker)
        assert [step["global_step"] for step in steps] == list(range(1, 81))
        assert fmean(done.losses(worker)[-5:]) < 0.5 * fmean(done.losses(worker)[:3])
        assert fmean(step["accuracy"] for step in steps[-5:]) > 0.5
        ran = done.marker(worker, "finished")["ran"]
        assert (ran["backend"], ran.get("topology", "none")) in {("gloo", "clique"), ("gloo", "none")}
        assert ran["torch"] == torch.__version__


def test_a_duration_ends_all_workers_at_the_same_step(warm_torch: WarmHost, folder: MakeFolder) -> None:
    job = folder(torch_job("star", steps=None, duration_s=0.5))
    assert set(warm_torch.run(job).values()) == {0}
    assert len({len(job.steps(worker)) for worker in WORKERS}) == 1 < len(job.steps(WORKERS[0]))


def test_the_same_seed_gives_the_same_losses_cold_or_warm(warm_torch: WarmHost, folder: MakeFolder) -> None:
    job = torch_job(workers=2, steps=4)
    cold, warm = folder(job), folder(again(job))
    processes = []
    for task in WORKERS[:2]:
        command = [*COMMAND, "task", "--job", str(cold.job_file), "--task", task, "--out", str(cold.out(task))]
        processes.append(subprocess.Popen(command))
    assert [process.wait(60) for process in processes] == [0, 0]
    assert set(warm_torch.run(warm).values()) == {0}
    assert cold.losses("worker:0") == warm.losses("worker:0")


@pytest.mark.parametrize(
    "job",
    [
        *(torch_job(topology, steps=100_000) for topology in ("ring", "clique", "binary_tree_star")),
        averaging(steps=100_000),
    ],
    ids=["ring", "clique", "binary_tree_star", "pair_averaging"],
)
def test_a_killed_worker_ends_the_others(warm_torch: WarmHost, folder: MakeFolder, job: JobSpec) -> None:
    running = folder(again(job))
    pids = warm_torch.start(running)
    for worker in WORKERS:
        running.wait_for_step(worker, 2)
    kill(pids["worker:1"])
    begin = time.monotonic()
    assert warm_torch.wait(pids) == {"worker:0": 1, "worker:1": -signal.SIGKILL, "worker:2": 1}
    assert time.monotonic() - begin < running.job.step_timeout_s
    for worker in ("worker:0", "worker:2"):
        # The second of them may name the first, which ended in the meantime.
        assert "went away" in running.last_words(worker)


def test_a_worker_that_stops_answering_ends_the_others(warm_torch: WarmHost, folder: MakeFolder) -> None:
    job = folder(torch_job("star", steps=100_000, step_timeout_s=3.0))
    pids = warm_torch.start(job)
    job.wait_for_step("worker:0", 2)
    os.kill(pids["worker:1"], signal.SIGSTOP)
    ended = warm_torch.wait({task: pids[task] for task in ("worker:0", "worker:2")})
    assert set(ended.values()) == {1}
    kill(pids["worker:1"])
    warm_torch.wait(pids)


def test_a_worker_that_never_comes_is_named(warm_torch: WarmHost, folder: MakeFolder) -> None:
    job = folder(torch_job(workers=2, start_timeout_s=4.0))
    assert warm_torch.wait(warm_torch.start(job, ["worker:1"])) == {"worker:1": 1}
    assert "worker:0 (127.0.0.1:" in job.last_words("worker:1")


def test_the_first_worker_writes_its_graph_and_trains_as_without(
    warm_torch: WarmHost, folder: MakeFolder, tmp_path: Path
) -> None:
    job = torch_job("star", workers=2, steps=3)
    without, graph = folder(job), tmp_path / "ran.parquet"
    assert set(warm_torch.run(without).values()) == {0}
    again_with = folder(again(job))
    pids = warm_torch.start(again_with, ["worker:0"], graph=str(graph)) | warm_torch.start(again_with, ["worker:1"])
    assert set(warm_torch.wait(pids).values()) == {0}
    assert again_with.losses("worker:0") == without.losses("worker:0")
    command = [*COMMAND, "graph", "--job", str(without.job_file), "--out", str(tmp_path / "made.parquet")]
    subprocess.run(command, check=True, timeout=60, capture_output=True)
    (ran,), (made,) = (pq.read_table(path).to_pylist() for path in (graph, tmp_path / "made.parquet"))
    assert ran == made
    assert (ran["framework"], ran["framework_version"], ran["task"]) == ("torch", torch.__version__, "worker:0")
