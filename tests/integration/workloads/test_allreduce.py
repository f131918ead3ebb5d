"""All-reduce jobs: no parameter servers, every worker in step, and faults that end them."""

from __future__ import annotations

import signal
from statistics import fmean

import pytest
from local_jobs import MakeFolder, WarmHost, kill, make_job

pytestmark = [pytest.mark.tf, pytest.mark.integration]
WORKERS = ("worker:0", "worker:1")


def test_workers_learn_together(warm: WarmHost, folder: MakeFolder) -> None:
    job = folder(make_job("cpu-p0w2-1g", "resnet20", steps=60, warmup=1))
    assert set(warm.run(job).values()) == {0}
    for worker in WORKERS:
        losses = job.losses(worker)
        assert [step["global_step"] for step in job.steps(worker)] == list(range(1, 62))
        assert fmean(losses[-5:]) < 0.8 * fmean(losses[:3])


def test_a_duration_ends_all_workers_at_the_same_step(warm: WarmHost, folder: MakeFolder) -> None:
    job = folder(make_job("cpu-p0w2-1g", "trivial", size=8, steps=None, duration_s=0.5, warmup=1))
    assert set(warm.run(job).values()) == {0}
    assert len(job.steps("worker:0")) == len(job.steps("worker:1")) > 1


def test_a_killed_worker_ends_the_other(warm: WarmHost, folder: MakeFolder) -> None:
    job = folder(make_job("cpu-p0w2-1g", "trivial", size=8, steps=100_000))
    pids = warm.start(job)
    job.wait_for_step("worker:0", 2)
    kill(pids["worker:1"])
    assert warm.wait(pids) == {"worker:0": 1, "worker:1": -signal.SIGKILL}
    assert "worker:1" in job.last_words("worker:0")


def test_a_worker_that_never_comes_is_named(warm: WarmHost, folder: MakeFolder) -> None:
    job = folder(make_job("cpu-p0w2-1g", "trivial", size=8, start_timeout_s=5.0))
    assert warm.wait(warm.start(job, ["worker:1"])) == {"worker:1": 1}
    assert "worker:0 (127.0.0.1:" in job.last_words("worker:1")
