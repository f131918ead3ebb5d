"""What goes wrong in a job ends it: every task, within the time limits, with a non-zero code and words that say why."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from typing import Any

import pytest
from local_jobs import COMMAND, MakeFolder, WarmHost, free_ports, kill, make_job

from driple.contracts.run_spec import JobSpec

pytestmark = [pytest.mark.tf, pytest.mark.integration]

ENDLESS = 100_000


def small(**options: Any) -> JobSpec:
    """A job that would go on for hours, of the smallest model."""
    job: JobSpec = make_job(model="trivial", size=8, steps=ENDLESS, **options)
    return job


def test_a_killed_worker_ends_a_sync_job(warm: WarmHost, folder: MakeFolder) -> None:
    job = folder(small(update="sync"))
    pids = warm.start(job)
    job.wait_for_step("worker:0", 2)
    kill(pids["worker:1"])
    codes = warm.wait(pids)
    assert codes == {"ps:0": 1, "ps:1": 1, "worker:0": 1, "worker:1": -signal.SIGKILL}
    assert job.marker("worker:1", "finished") is None
    # Whoever notices first ends first, and the others then notice that.
    assert any("worker:1 went away" in job.last_words(ps) for ps in ("ps:0", "ps:1"))
    assert "went away" in job.last_words("worker:0")


def test_a_killed_server_ends_an_async_job(warm: WarmHost, folder: MakeFolder) -> None:
    job = folder(small(update="async"))
    pids = warm.start(job)
    job.wait_for_step("worker:1", 2)
    kill(pids["ps:1"])
    codes = warm.wait(pids)
    assert codes == {"ps:0": 1, "ps:1": -signal.SIGKILL, "worker:0": 1, "worker:1": 1}
    for worker in ("worker:0", "worker:1"):
        assert "ps:" in job.last_words(worker)
        words = (job.out(worker) / "stderr.log").read_text().splitlines()[-1]
        assert words == f"{worker}: {job.last_words(worker)}"


@pytest.mark.parametrize(("update", "hung"), [("sync", "worker:1"), ("async", "worker:1"), ("async", "ps:0")])
def test_a_task_that_hangs_ends_the_others(warm: WarmHost, folder: MakeFolder, update: str, hung: str) -> None:
    job = folder(small(update=update, step_timeout_s=4.0))
    pids = warm.start(job)
    job.wait_for_step("worker:1", 2)
    os.kill(pids[hung], signal.SIGSTOP)
    try:
        # In async mode the other worker steps on and waits for nobody: that one does not answer is all there is to see.
        others = {task: pid for task, pid in pids.items() if task != hung}
        codes = warm.wait(others)
    finally:
        for pid in pids.values():
            kill(pid)
    warm.wait(pids)
    assert set(codes.values()) == {1}
    words = [job.last_words(task) for task in others]
    assert any("stuck" in each or f"{hung} went away" in each for each in words), words


def test_a_refused_job_file_is_said_in_place_of_what_an_earlier_attempt_left(
    warm: WarmHost, folder: MakeFolder
) -> None:
    job = folder(make_job("cpu-p1w1-1g", "trivial", size=8, steps=1))
    assert set(warm.run(job).values()) == {0}
    job.job_file.write_text("{")
    assert set(warm.run(job).values()) == {2}
    assert job.marker("worker:0", "finished")["exit_code"] == 2
    assert "not valid JSON" in job.last_words("worker:0")


def test_a_server_that_never_comes_is_named(warm: WarmHost, folder: MakeFolder) -> None:
    job = folder(small(start_timeout_s=8.0))
    pids = warm.start(job, ["ps:0", "worker:0", "worker:1"])
    assert set(warm.wait(pids).values()) == {1}
    words = [job.last_words(task) for task in pids]
    assert any("ps:1 (127.0.0.1:" in each and "never answered" in each for each in words), words


def test_a_worker_that_never_comes_ends_the_rest(warm: WarmHost, folder: MakeFolder) -> None:
    job = folder(small(start_timeout_s=8.0))
    pids = warm.start(job, ["ps:0", "ps:1", "worker:0"])
    assert set(warm.wait(pids).values()) == {1}
    assert any("worker:1 (127.0.0.1:" in job.last_words(task) for task in ("ps:0", "ps:1"))


def test_a_port_in_use_is_named_and_the_others_give_up(warm: WarmHost, folder: MakeFolder) -> None:
    spec = small(start_timeout_s=8.0)
    port = spec.task("ps:1").address.rpartition(":")[2]
    with socket.create_server(("127.0.0.1", int(port))):
        job = folder(spec)
        codes = warm.run(job)
    assert set(codes.values()) == {1}
    assert f"port {port} cannot be opened" in job.last_words("ps:1")


def test_a_batch_that_does_not_fit_says_so_and_ends_the_job(warm: WarmHost, folder: MakeFolder) -> None:
    # Images of terabytes, made from a few kilobytes by the first op that no machine has the memory for.
    job = folder(make_job(model="resnet20", size=4096, batch=16384, steps=5, start_timeout_s=30.0))
    codes = warm.run(job)
    assert set(codes.values()) == {1}
    workers = [job.last_words(worker) for worker in ("worker:0", "worker:1")]
    assert any("out of memory" in words and "smaller batch" in words for words in workers), workers


def test_a_task_ends_with_its_starter(folder: MakeFolder) -> None:
    job = folder(make_job("cpu-p1w1-1g", "trivial", size=8))
    command = [*COMMAND, "task", "--job", str(job.job_file), "--task", "ps:0", "--out", str(job.out("ps:0"))]
    log = job.root / "stderr.log"
    with log.open("w") as stderr:
        process = subprocess.Popen([*command, "--watch-stdin"], stdin=-1, stdout=-3, stderr=stderr)
    assert process.stdin is not None
    try:
        while job.marker("ps:0", "ready") is None:
            assert process.poll() is None, log.read_text()
            time.sleep(0.05)
        process.stdin.close()
        assert process.wait(30) == 1
    finally:
        process.kill()
        process.wait()
    assert "stdin was closed" in log.read_text().splitlines()[-1]


def test_names_that_do_not_exist_are_refused_before_anything_starts(warm: WarmHost, folder: MakeFolder) -> None:
    job = folder(make_job("cpu-p1w1-1g", "trivial", size=8))
    broken = job.job.to_json()
    broken["run"]["workload"]["model"] = "resnet21"
    job.job_file.write_text(json.dumps(broken))
    pids = warm.start(job, ["worker:0"])
    assert warm.wait(pids) == {"worker:0": 2}
    words = (job.out("worker:0") / "stderr.log").read_text()
    assert len(words.splitlines()) == 1
    assert "unknown model 'resnet21'; did you mean 'resnet" in words and "xception" in words
    assert job.marker("worker:0", "ready") is None


def test_a_task_that_is_not_in_the_job_and_a_file_that_is_none(folder: MakeFolder) -> None:
    job = folder(make_job("cpu-p1w1-1g", "trivial", size=8))
    not_json = job.root / "cut.json"
    not_json.write_text(json.dumps(job.job.to_json())[:-20])
    for file, task, words in (
        (job.job_file, "worker:7", "no task 'worker:7' in this job (it has ps:0, worker:0)"),
        (not_json, "worker:0", "not valid JSON"),
        (job.root / "none.json", "worker:0", "No such file"),
    ):
        command = [*COMMAND, "task", "--job", str(file), "--task", task, "--out", str(job.out("x"))]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        assert result.returncode == 2
        assert words in result.stderr and len(result.stderr.splitlines()) == 1


def test_free_ports_differ() -> None:
    assert len(set(free_ports(4))) == 4
