"""All-reduce jobs: no parameter servers, every worker in step, and faults that end them."""

from __future__ import annotations

import contextlib
import hashlib
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from local_jobs import PATIENCE_S, MakeFolder, WarmHost, free_ports, gone, kill, make_job

from driple.contracts.errors import RunFailed
from driple.contracts.run_spec import JobSpec
from driple.workloads.strategies.allreduce_barrier import StartBarrier

pytestmark = [pytest.mark.tf, pytest.mark.integration]
WORKERS = ("worker:0", "worker:1")


def test_workers_learn_together(warm: WarmHost, folder: MakeFolder) -> None:
    job = folder(make_job("cpu-p0w2-1g", "resnet20", steps=60, warmup=1))
    assert set(warm.run(job).values()) == {0}
    for worker in WORKERS:
        losses = job.losses(worker)
        assert [step["global_step"] for step in job.steps(worker)] == list(range(1, 62))
        assert fmean(losses[-5:]) < 0.8 * fmean(losses[:3])
        accuracies = [step["accuracy"] for step in job.steps(worker)]
        assert 0 <= fmean(accuracies[:3]) < fmean(accuracies[-5:]) <= 1


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


@pytest.mark.parametrize(
    ("model", "sizes"),
    [
        ("nmt_small", {"batch": 4, "size": 4, "width": 0.05}),
        ("transformer", {"batch": 4, "size": 4, "width": 0.05}),
        ("ncf", {"batch": 7}),  # not to be divided by the workers
    ],
)
def test_a_batch_is_each_worker_s_own(warm: WarmHost, folder: MakeFolder, model: str, sizes: dict[str, Any]) -> None:
    job = folder(make_job("cpu-p0w2-1g", model, steps=3, **sizes))
    assert set(warm.run(job).values()) == {0}, [job.last_words(worker) for worker in WORKERS]
    assert [len(job.steps(worker)) for worker in WORKERS] == [3, 3]


OWN = """
import tensorflow as tf
import tf_keras


def logits(image, *, classes):
    return tf_keras.layers.Dense(classes)(tf_keras.layers.Flatten()(image))


def told(given):
    weight, label = given
    mean, weight = tf.reduce_mean(tf.cast(label, tf.float32)), weight[0, 0]
    slope = weight * mean  # its gradient is the mean label of this worker's batch
    return slope + tf.stop_gradient(16.0 * mean + weight - slope)


def one(image, *, label):
    ones = tf_keras.layers.Lambda(lambda x: tf.ones_like(x[:, 0, 0, :1]))(image)
    weight = tf_keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros")(ones)
    return tf_keras.layers.Lambda(told)([weight, label])
"""


def own(path: Path, function: str, setting: str, **options: Any) -> JobSpec:
    path.write_text(OWN)
    job = make_job(setting, optimiser="sgd", **options)
    work = replace(
        job.run.workload,
        model=f"{path.name}:{function}",
        code_sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
    )
    return replace(job, run=replace(job.run, workload=work), code_path=str(path))


def test_a_model_of_one_s_own_that_returns_logits(warm: WarmHost, folder: MakeFolder, tmp_path: Path) -> None:
    job = folder(own(tmp_path / "own.py", "logits", "cpu-p0w3-1g", steps=2, batch=4, size=8))
    assert set(warm.run(job).values()) == {0}, job.last_words("worker:0")


def test_a_step_goes_by_the_mean_over_workers(warm: WarmHost, folder: MakeFolder, tmp_path: Path) -> None:
    job = folder(own(tmp_path / "own.py", "one", "cpu-p0w2-1g", steps=4, batch=8, size=8))
    assert set(warm.run(job).values()) == {0}, job.last_words("worker:0")
    # A loss is 16 times the mean of 8 labels, so an even number, plus the weight, which stays below 1.
    means = {worker: [2 * round(loss / 2) / 16 for loss in job.losses(worker)] for worker in WORKERS}
    assert means["worker:0"] != means["worker:1"]
    weight = 0.0
    for step in range(4):
        for worker in WORKERS:
            assert job.steps(worker)[step]["accuracy"] is None  # it returns its loss
            assert job.losses(worker)[step] - 16 * means[worker][step] == pytest.approx(weight, abs=1e-4)
        weight -= 0.02 * fmean(means[worker][step] for worker in WORKERS)  # the rate of sgd for images


@pytest.mark.parametrize("lost", WORKERS)
def test_a_worker_that_is_lost_while_the_ring_forms_is_named(warm: WarmHost, folder: MakeFolder, lost: str) -> None:
    """The lost one is played here: it comes to the barrier, and TensorFlow then waits for it in vain."""
    job = folder(make_job("cpu-p0w2-1g", "trivial", size=8, start_timeout_s=8.0))
    (here,) = set(WORKERS) - {lost}
    address, other = job.job.task(lost).address, job.job.task(here).address
    begin = time.monotonic()
    pids = warm.start(job, [here])
    StartBarrier(lost, address, {here: other}).wait()
    with contextlib.ExitStack() as stack:
        if lost == "worker:1":  # this one is stopped and not gone: its connections are taken, and nobody answers
            stack.enter_context(socket.create_server(("127.0.0.1", int(address.rpartition(":")[2]))))
        assert warm.wait(pids) == {here: 1}
    assert time.monotonic() - begin < 8.0 + 1.0
    words = job.last_words(here)
    assert f"{lost} ({address})" in words and "ring" in words and "{{" not in words, words


def test_a_ring_that_breaks_is_told_in_plain_words() -> None:
    import tensorflow as tf

    from driple.workloads.strategies import allreduce

    (port,) = free_ports(1)
    node = "{{function_node __wrapped__CollectiveBcastSend_device_/job:worker/replica:0/task:0/device:CPU:0}}"
    raw = f"{node} Collective ops is aborted by: failed to connect to all addresses"
    with pytest.raises(RunFailed) as caught, allreduce._named_errors({"worker:1": f"127.0.0.1:{port}"}):
        raise tf.errors.UnavailableError(None, None, raw)
    assert str(caught.value).startswith(f"the ring of workers broke: worker:1 (127.0.0.1:{port}) does not answer")
    assert "function_node" not in str(caught.value)
    with pytest.raises(tf.errors.InvalidArgumentError), allreduce._named_errors({}):
        raise tf.errors.InvalidArgumentError(None, None, "shapes differ")


def test_a_stopped_task_leaves_no_process_that_writes_its_graph(warm: WarmHost, folder: MakeFolder) -> None:
    job = folder(make_job("cpu-p0w2-1g", "ncf"))
    (pid,) = warm.start(job, ["worker:0"], graph=str(job.root / "g.parquet")).values()
    deadline = time.monotonic() + PATIENCE_S
    while not (children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.5)
    assert warm.stop(pid) == -signal.SIGTERM
    while not all(gone(int(child)) for child in children):
        assert time.monotonic() < deadline, "the process that writes the graph goes on"
        time.sleep(0.01)
    assert not (job.root / "g.parquet").exists()
