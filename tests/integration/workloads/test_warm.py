"""A warm host runs what the task command runs, leaks nothing from run to run, and leaves nobody behind."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import pytest
from local_jobs import COMMAND, Folder, MakeFolder, WarmHost, again, gone, make_job

pytestmark = [pytest.mark.tf, pytest.mark.integration]


def run_cold(job: Folder) -> list[int]:
    processes = []
    for task in job.job.run.setting.tasks:
        out = job.out(task)
        out.mkdir()
        command = [*COMMAND, "task", "--job", str(job.job_file), "--task", task, "--out", str(out)]
        with (out / "stderr.log").open("w") as stderr:
            processes.append(subprocess.Popen(command, stdin=-3, stdout=-3, stderr=stderr))
    try:
        return [process.wait(100) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


@pytest.mark.parametrize(("setting", "model"), [("cpu-p1w1-1g", "resnet20"), ("cpu-p0w2-1g", "lenet")])
def test_the_same_seed_gives_the_same_losses_cold_or_warm_and_after_other_runs(
    warm: WarmHost, folder: MakeFolder, setting: str, model: str
) -> None:
    job = make_job(setting, model, steps=5, width=0.25, batch=4, seed=2**31 - 1)
    cold, first, between, second = (folder(again(each)) for each in (job, job, make_job(model="trivial", size=8), job))
    assert run_cold(cold) == [0, 0]
    for each in (first, between, second):
        assert set(warm.run(each).values()) == {0}
    assert cold.losses("worker:0") == first.losses("worker:0") == second.losses("worker:0")
    other = folder(make_job(setting, model, steps=1, width=0.25, batch=4, seed=4))
    assert set(warm.run(other).values()) == {0}
    assert other.losses("worker:0")[0] != first.losses("worker:0")[0]


def test_lines_that_are_no_orders_are_answered_and_do_no_harm(warm: WarmHost, folder: MakeFolder) -> None:
    for line in (
        "garbage",
        "[]",
        '{"run": 5}',
        '{"run": {"job": "j"}}',
        '{"jump": {}}',
        '{"stop": []}',
        '{"run": {"jop": "j"}}',
    ):
        assert "expected" in warm.error_of(line)
    job = folder(make_job("cpu-p1w1-1g", "trivial", size=8, steps=2))
    assert set(warm.run(job).values()) == {0}


def test_stop_ends_a_task(warm: WarmHost, folder: MakeFolder) -> None:
    job = folder(make_job("cpu-p1w1-1g", "trivial", size=8))
    pid = warm.start(job, ["ps:0"])["ps:0"]
    assert warm.stop(pid) == -signal.SIGTERM


@pytest.mark.parametrize("end", ["stdin", "kill"])
def test_the_end_of_the_host_is_the_end_of_its_tasks(tmp_path: Path, folder: MakeFolder, end: str) -> None:
    host = WarmHost(tmp_path / "stderr.log")
    try:
        job = folder(make_job("cpu-p1w1-1g", "trivial", size=8))
        pid = host.start(job, ["ps:0"])["ps:0"]
        while job.marker("ps:0", "ready") is None:
            time.sleep(0.05)
        if end == "stdin":
            assert host.close() == 0
        else:
            host.process.kill()
        deadline = time.monotonic() + 20
        while not gone(pid):
            assert time.monotonic() < deadline
            time.sleep(0.05)
    finally:
        host.process.kill()
        host.process.wait()
        for stream in (host.process.stdin, host.process.stdout):
            assert stream is not None
            stream.close()


def test_a_task_leaves_its_words_in_its_own_folder(warm: WarmHost, folder: MakeFolder) -> None:
    job = folder(make_job("cpu-p1w1-1g", "trivial", size=8))
    job.job_file.write_text(json.dumps({**job.job.to_json(), "surprise": 1}))
    assert warm.wait(warm.start(job, ["ps:0"])) == {"ps:0": 2}
    assert "unknown key 'surprise'" in (job.out("ps:0") / "stderr.log").read_text()
    assert (job.out("ps:0") / "stdout.log").read_text() == ""
