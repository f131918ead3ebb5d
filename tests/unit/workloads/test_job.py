"""The job file is checked whole before anything starts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from driple.contracts.errors import BadInput
from driple.contracts.run_spec import JobSpec
from driple.contracts.setting import Setting
from driple.workloads.runtime.job import check_job, job_without_hosts, read_job, workload_of

CPU = Setting.parse("cpu-p2w2-1g")


def a_job(setting: Setting = CPU, **workload: Any) -> JobSpec:
    return job_without_hosts(setting, workload_of("resnet20", None, 8, **workload))


def test_a_job_survives_its_file(tmp_path: Path) -> None:
    path = tmp_path / "job.json"
    path.write_text(json.dumps(a_job().to_json()))
    assert read_job(path) == a_job()


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("model", "resnet-20", "did you mean 'resnet20'?"),
        ("dataset", "cifar", "did you mean 'cifar10'?"),
        ("dataset", "imagenet", "resnet20 is trained on cifar10, not on imagenet"),
        ("optimiser", "adamw", "did you mean 'adam'?"),
        ("update", "synch", "did you mean 'sync'?"),
        ("strategy", "ring", "known: ps, allreduce"),
        ("sharding", "even", "known: balanced, round_robin"),
        ("batch_size", 0, "batch_size: expected 1 to"),
        ("image_size", 0, "image_size: expected 1 to 4096, got 0"),
        ("width", 0.0, "width: expected 0.01 to 64, got 0.0"),
        ("model", "mine.py:net", "has no code_path"),
        ("strategy", "allreduce", "needs no servers (p0)"),
    ],
)
def test_what_no_task_could_run_is_refused(tmp_path: Path, field: str, value: Any, words: str) -> None:
    job = a_job().to_json()
    job["run"]["workload"][field] = value
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job))
    with pytest.raises(BadInput, match="^" + str(path)) as caught:
        read_job(path)
    assert words in str(caught.value)


@pytest.mark.parametrize("address", ["here", "here:", ":1", "here:0", "here:65536", "here:http"])
def test_addresses_have_a_port(address: str) -> None:
    job = a_job()
    with pytest.raises(BadInput, match="ps:0: expected address:port"):
        check_job(replace(job, tasks=(replace(job.tasks[0], address=address), *job.tasks[1:])))


def test_a_worker_of_a_gpu_setting_has_a_gpu() -> None:
    job = a_job(Setting.parse("v100-p2w2-pcie"))
    assert [task.gpu for task in job.tasks] == [None, None, 0, 0]
    with pytest.raises(BadInput, match="worker:0: no gpu index"):
        check_job(replace(job, tasks=tuple(replace(task, gpu=None) for task in job.tasks)))


def test_ordinary_sizes_are_filled_in(tmp_path: Path) -> None:
    assert workload_of("inception3", None, 4).image_size == 299
    assert workload_of("transformer", None, 4).sequence_length == 50
    assert workload_of("alexnet", "cifar10", 4, size=16).image_size == 16
    assert workload_of("ncf", None, 4).image_size is None
    with pytest.raises(BadInput, match="name its dataset with --dataset"):
        workload_of("mine.py:net", None, 4)
    with pytest.raises(BadInput, match="No such file"):
        workload_of("mine.py:net", "cifar10", 4, code_path=str(tmp_path / "mine.py"))
