"""Jobs that Horovod trains. Needs Horovod for the framework, with gloo or MPI (docs/guides/horovod.md)."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from functools import cache
from importlib.util import find_spec
from typing import Any

import pytest
from local_jobs import MakeFolder, WarmHost, again, kill, make_job

from driple.contracts.run_spec import JobSpec

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(find_spec("horovod") is None, reason="horovod is not installed"),
]
WORKERS = ("worker:0", "worker:1", "worker:2")
USUAL = {"torch": "gloo", "tensorflow": "grpc"}


@cache
def built_with(framework: str) -> str:
    """What Horovod was built with for a framework; empty without the framework."""
    code = f"import horovod.{framework} as h; print(*(n for n in ('gloo', 'mpi') if getattr(h, n + '_built')()))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
    return done.stdout.strip().rpartition("\n")[2] if done.returncode == 0 else ""


@pytest.fixture(
    params=[
        pytest.param(
            (framework, carrier),
            marks=[pytest.mark.tf] if framework == "tensorflow" else [],
            id=f"{framework}-{carrier}",
        )
        for framework in ("torch", "tensorflow")
        for carrier in ("gloo", "mpi")
    ]
)
def kind(request: pytest.FixtureRequest) -> tuple[str, str]:
    framework, carrier = request.param
    if carrier not in built_with(framework).split():
        pytest.skip(f"horovod was built without {framework} or without {carrier}")
    return framework, f"horovod_{carrier}"


@pytest.fixture
def host(kind: tuple[str, str], request: pytest.FixtureRequest) -> WarmHost:
    found: WarmHost = request.getfixturevalue("warm_torch" if kind[0] == "torch" else "warm")
    return found


def horovod_job(kind: tuple[str, str], **options: Any) -> JobSpec:
    more: dict[str, Any] = {"framework": kind[0], "backend": kind[1], "size": 16, "batch": 4, **options}
    return make_job("cpu-p0w3-1g", "lenet", **more)


def test_it_trains_as_the_framework_does_alone(kind: tuple[str, str], host: WarmHost, folder: MakeFolder) -> None:
    usual = folder(horovod_job(kind, steps=5, backend=USUAL[kind[0]]))
    job = folder(horovod_job(kind, steps=5))
    for each in (usual, job):
        assert set(host.run(each).values()) == {0}, [each.last_words(worker) for worker in WORKERS]
    for worker in WORKERS:
        assert job.losses(worker) == pytest.approx(usual.losses(worker), abs=1e-4)
        ran = job.marker(worker, "finished")["ran"]
        assert (ran["backend"], ran["topology"]) == (kind[1], "ring") and {"horovod", kind[0]} <= set(ran)


def test_a_duration_ends_all_workers_at_the_same_step(
    kind: tuple[str, str], host: WarmHost, folder: MakeFolder
) -> None:
    job = folder(horovod_job(kind, steps=None, duration_s=0.5))
    assert set(host.run(job).values()) == {0}, [job.last_words(worker) for worker in WORKERS]
    assert len({len(job.steps(worker)) for worker in WORKERS}) == 1 < len(job.steps(WORKERS[0]))


def test_a_killed_worker_ends_the_others(kind: tuple[str, str], host: WarmHost, folder: MakeFolder) -> None:
    job = folder(again(horovod_job(kind, steps=100_000)))
    pids = host.start(job)
    for worker in WORKERS:
        job.wait_for_step(worker, 2)
    kill(pids["worker:1"])
    begin = time.monotonic()
    ended = host.wait(pids)
    assert ended["worker:1"] == -signal.SIGKILL and 0 not in ended.values()
    assert time.monotonic() - begin < job.job.step_timeout_s


def test_a_worker_that_never_comes_is_named(kind: tuple[str, str], host: WarmHost, folder: MakeFolder) -> None:
    job = folder(horovod_job(kind, start_timeout_s=6.0))
    assert set(host.wait(host.start(job, ["worker:0", "worker:1"])).values()) == {1}
    for worker in WORKERS[:2]:
        assert "worker:2 (127.0.0.1:" in job.last_words(worker)
