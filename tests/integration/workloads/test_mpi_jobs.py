"""Jobs whose gradients go by MPI. Needs mpi4py and MPICH (extra mpi)."""

from __future__ import annotations

import signal
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
        assert ran["backend"] == "mpi" and ran["mpi"].startswith("MPICH")


def test_a_killed_worker_ends_the_others(warm_torch: WarmHost, folder: MakeFolder) -> None:
    job = folder(torch_job(steps=100_000, backend="mpi"))
    pids = warm_torch.start(job)
    for worker in WORKERS:
        job.wait_for_step(worker, 2)
    kill(pids["worker:1"])
    ended = warm_torch.wait(pids)
    assert ended["worker:1"] == -signal.SIGKILL and 0 not in ended.values()
