"""Jobs whose gradients go by MPI. Needs mpi4py and MPICH (extra mpi)."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from importlib.util import find_spec

import pytest
from local_jobs import MakeFolder, WarmHost, kill
from test_torch_jobs import WORKERS, torch_job

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_spec("mpi4py") is None, reason="mpi4py is not installed"),
]


@pytest.mark.parametrize("topology", ["ring", "clique"])
def test_mpi_sums_what_gloo_sums(warm_torch: WarmHost, folder: MakeFolder, topology: str) -> None:
    by_gloo, by_mpi = (folder(torch_job(topology, steps=5, backend=backend)) for backend in ("gloo", "mpi"))
    for job in (by_gloo, by_mpi):
        assert set(warm_torch.run(job).values()) == {0}, [job.last_words(worker) for worker in WORKERS]
    for worker in WORKERS:
        assert by_mpi.losses(worker) == pytest.approx(by_gloo.losses(worker), abs=1e-4)
        ran = by_mpi.marker(worker, "finished")["ran"]
        assert (ran["backend"], ran["topology"]) == ("mpi", topology) and ran["mpi"].startswith("MPICH")


@pytest.mark.parametrize("topology", ["ring", "clique", "star"])
def test_a_killed_worker_ends_the_others(warm_torch: WarmHost, folder: MakeFolder, topology: str) -> None:
    job = folder(torch_job(topology, steps=100_000, backend="mpi"))
    pids = warm_torch.start(job)
    for worker in WORKERS:
        job.wait_for_step(worker, 2)
    kill(pids["worker:1"])
    begin = time.monotonic()
    assert warm_torch.wait(pids) == {"worker:0": 1, "worker:1": -signal.SIGKILL, "worker:2": 1}
    assert time.monotonic() - begin < job.job.step_timeout_s
    for worker in ("worker:0", "worker:2"):
        assert "went away" in job.last_words(worker)


DIES = """
import os, socket
from driple.workloads.cli import main
from driple.workloads.collectives import mpi_messages
def die(process_manager, rank, interface):
    host, _, port = process_manager.rpartition(":")
    with socket.create_connection((host, int(port))) as line:
        line.sendall(f"cmd=initack pmiid={rank}\\n".encode())
        line.recv(1000)
        os._exit(7)
mpi_messages.set_variables = die
main()
"""


def test_nobody_waits_for_a_worker_that_is_lost_while_mpi_starts(warm_torch: WarmHost, folder: MakeFolder) -> None:
    job = folder(torch_job(steps=5, backend="mpi"))
    pids = warm_torch.start(job, ["worker:0", "worker:2"])
    words = ["task", "--job", str(job.job_file), "--task", "worker:1", "--out", str(job.out("worker:1"))]
    with subprocess.Popen([sys.executable, "-c", DIES, *words], stdin=subprocess.PIPE) as lost:
        ended = warm_torch.wait(pids)
        assert lost.wait(20) == 7
    assert 0 not in ended.values()
