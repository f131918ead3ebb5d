"""Training is training: the loss goes down, in lock-step and without, and every task says what it did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from local_jobs import MakeFolder, WarmHost, make_job

from driple.contracts.formats.trace import STEP_COLUMNS

pytestmark = [pytest.mark.tf, pytest.mark.integration]
WORKERS = ("worker:0", "worker:1")


def learnt(losses: list[float]) -> bool:
    return fmean(losses[-5:]) < 0.8 * fmean(losses[:3])


def test_sync_steps_in_lock_step_and_learns(warm: WarmHost, folder: MakeFolder) -> None:
    job = folder(make_job(steps=30, warmup=2, update="sync"))
    assert set(warm.run(job).values()) == {0}
    for worker in WORKERS:
        steps = job.steps(worker)
        assert [step["step"] for step in steps] == list(range(32))
        # The job's step grows by one for a step of BOTH workers, and neither is ever ahead.
        assert [step["global_step"] for step in steps] == list(range(1, 33))
        assert all(tuple(step) == tuple(column.name for column in STEP_COLUMNS) for step in steps)
        assert all(
            before["end_mono_ns"] <= after["start_mono_ns"] for before, after in zip(steps, steps[1:], strict=False)
        )
        assert learnt(job.losses(worker))
        assert job.marker(worker, "finished")["steps"] == 32
    # Each worker sees examples of its own.
    assert job.losses(WORKERS[0])[0] != job.losses(WORKERS[1])[0]
    for task in job.job.run.setting.tasks:
        assert job.marker(task, "ready")["task"] == task
        assert job.marker(task, "finished")["exit_code"] == 0


def test_async_workers_step_alone_and_learn(warm: WarmHost, folder: MakeFolder) -> None:
    job = folder(make_job(steps=30, update="async"))
    assert set(warm.run(job).values()) == {0}
    # No step is lost or counted twice: between them they have seen the job's every step.
    assert max(job.steps(worker)[-1]["global_step"] for worker in WORKERS) == 60
    for worker in WORKERS:
        assert len(job.steps(worker)) == 30
    # The job learns: a worker that starts late finds the weights learnt, and has little left to do.
    together = sorted((step for worker in WORKERS for step in job.steps(worker)), key=lambda step: step["global_step"])
    assert learnt([step["loss"] for step in together])
    assert fmean(step["accuracy"] for step in together[:6]) < fmean(step["accuracy"] for step in together[-10:]) <= 1


def test_a_duration_in_lock_step_ends_all_workers_at_the_same_step(warm: WarmHost, folder: MakeFolder) -> None:
    job = folder(make_job(model="trivial", size=32, steps=None, duration_s=1.0, warmup=2))
    assert set(warm.run(job).values()) == {0}
    first, second = (job.steps(worker) for worker in WORKERS)
    assert len(first) == len(second) > 3
    measured_ns = first[-1]["end_mono_ns"] - first[1]["end_mono_ns"]
    assert measured_ns >= 1.0e9


@pytest.mark.parametrize("update", ["sync", "async"])
def test_sparse_gradients_another_optimiser_and_odd_numbers_of_tasks(
    warm: WarmHost, folder: MakeFolder, update: str
) -> None:
    job = folder(make_job("cpu-p3w1-1g", "ncf", steps=3, optimiser="adam", sharding="round_robin", update=update))
    assert set(warm.run(job).values()) == {0}
    assert [step["global_step"] for step in job.steps("worker:0")] == [1, 2, 3]


def test_lock_step_holds_when_steps_are_fast_and_servers_many(
    warm: WarmHost, folder: MakeFolder, tmp_path: Path
) -> None:
    """One queue for all workers let a fast one go twice and another wait for ever, within some hundred steps."""
    (tmp_path / "own.py").write_text(OWN)
    spec = make_job("cpu-p3w3-1g", "trivial", steps=600, size=32, batch=1)
    workload = replace(spec.run.workload, model="own.py:small", dataset="cifar10")
    job = folder(replace(spec, run=replace(spec.run, workload=workload), code_path=str(tmp_path / "own.py")))
    assert set(warm.run(job).values()) == {0}
    for worker in (*WORKERS, "worker:2"):
        assert [step["global_step"] for step in job.steps(worker)] == list(range(1, 601))


OWN = """
import tensorflow as tf

def small(image, *, classes):
    weights = [tf.compat.v1.get_variable(name, [classes]) for name in "abc"]
    return tf.reduce_mean(image) * weights[0] + weights[1] + weights[2] + tf.zeros([image.shape[0], classes])

def linear(image, *, classes):
    return tf.reshape(image, [image.shape[0], -1]) @ tf.compat.v1.get_variable("w", [3072, classes])

def plain(image, *, classes):
    return tf.reshape(image, [image.shape[0], -1]) @ tf.Variable(tf.random.normal([3072, classes]))
"""


@pytest.mark.parametrize("function", ["linear", "plain"])
def test_a_model_of_the_users_own_trains(warm: WarmHost, folder: MakeFolder, tmp_path: Path, function: str) -> None:
    (tmp_path / "own.py").write_text(OWN)
    spec = make_job("cpu-p1w1-1g", "trivial", steps=2, size=32)
    workload = replace(spec.run.workload, model=f"own.py:{function}", dataset="cifar10")
    job = folder(replace(spec, run=replace(spec.run, workload=workload), code_path=str(tmp_path / "own.py")))
    assert set(warm.run(job).values()) == {0}
    assert len(job.losses("worker:0")) == 2
