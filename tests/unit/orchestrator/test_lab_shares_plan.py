"""Shares of the processors, before there is a lab: periods, and control groups in a tree of plain files."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from driple.contracts.errors import BadInput
from driple.orchestrator.config.experiment import load_experiment
from driple.orchestrator.hosts.registry import backend
from driple.orchestrator.lab import cpu_groups, linux_calls
from driple.orchestrator.lab.cpu_groups import CpuGroups, GroupError, remove_recorded
from driple.orchestrator.lab.layout import GROUPS_FILE, LabPlan
from driple.orchestrator.lab.share_period import share_period_us
from driple.orchestrator.planning.plan import plan

EXPERIMENT = {"name": "e", "setting": "cpu-p1w2-1g", "steps": 5, "workloads": [{"model": "lenet"}]}


@pytest.mark.parametrize(
    ("hz", "cores", "period_us"),
    [
        (200.0, 0.45, 5000),
        (100.0, 0.45, 5000),
        (50.0, 0.9, 5000),
        (150.0, 0.9, 6667),  # one period a sample
        (200.0, 0.1, 10000),  # the least quota of 1 ms: a period of two samples
        (1000.0, 1.0, 1000),
        (1000.0, 0.5, 5000),  # five samples
        (300.0, 0.9, 3333),
    ],
)
def test_samples_cover_whole_periods(hz: float, cores: float, period_us: int) -> None:
    assert share_period_us(hz, cores) == period_us
    assert cores * period_us >= 1000
    samples = period_us * hz / 1e6
    assert min(abs(samples - round(samples)) if samples > 1 else abs(1 / samples - round(1 / samples)), 1) < 1e-3


def plan_of(**changes: Any) -> LabPlan:
    values: dict[str, Any] = {"hosts": 2, "user": "me", "uid": 0, "gid": 0, "shell": "/bin/sh", "path": "/bin"}
    return LabPlan(**(values | {"cores_per_host": 0.5} | changes))


@pytest.fixture
def lab(tmp_path: Path) -> Path:
    folder = tmp_path / "lab"
    folder.mkdir()
    return folder


def tree(monkeypatch: pytest.MonkeyPatch, mounts: str, own: str) -> None:
    """What /proc says about control groups."""
    texts = {"/proc/self/mountinfo": mounts, "/proc/self/cgroup": own}
    real = Path.read_text
    monkeypatch.setattr(Path, "read_text", lambda self, *a, **k: texts.get(str(self)) or real(self, *a, **k))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 3})


def test_version_1_has_a_group_for_each_host_and_controller(
    tmp_path: Path, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cpu", "cpuset"):
        (tmp_path / name / "mine").mkdir(parents=True)
    (tmp_path / "cpuset/mine/cpuset.cpus").write_text("0,3\n")
    (tmp_path / "cpuset/mine/cpuset.mems").write_text("0\n")
    mounts = "".join(
        f"{number} 1 0:{number} / {tmp_path}/{name} rw - cgroup cgroup rw,{options}\n"
        for number, (name, options) in enumerate({"cpu": "cpu,cpuacct", "cpuset": "cpuset"}.items())
    )
    tree(monkeypatch, mounts, "3:cpuset:/mine\n2:cpu,cpuacct:/mine\n0::/\n")
    groups = CpuGroups(plan_of(), "label", lab / GROUPS_FILE)
    own = tmp_path / "cpu/mine/label/lab2"
    assert (own / "cpu.cfs_period_us").read_text() == "5000" and (own / "cpu.cfs_quota_us").read_text() == "2500"
    assert [groups.core(name) for name in ("lab1", "lab2")] == [0, 3]
    assert (tmp_path / "cpuset/mine/label/lab2/cpuset.cpus").read_text() == "3"
    assert (tmp_path / "cpuset/mine/label/lab2/cpuset.mems").read_text() == "0"
    assert groups.process_files("lab1") == tuple(
        f"{tmp_path}/{name}/mine/label/lab1/cgroup.procs" for name in ("cpu", "cpuset")
    )


def test_version_2_uses_the_nearest_group_that_takes_limits(
    tmp_path: Path, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "user/scope").mkdir(parents=True)
    (tmp_path / "user/scope/cgroup.controllers").write_text("cpuset cpu\n")
    (tmp_path / "user/scope/cgroup.subtree_control").mkdir()  # writing fails, as in a group with processes
    (tmp_path / "user/cgroup.controllers").write_text("cpuset cpu memory\n")
    tree(monkeypatch, f"1 1 0:1 / {tmp_path} rw - cgroup2 cgroup2 rw\n", "0::/user/scope\n")
    groups = CpuGroups(plan_of(cores_per_host=2.0), "label", lab / GROUPS_FILE)
    assert groups.made_by == "cgroup v2" and groups.core("lab1") is None  # two cores: bound to none
    assert (tmp_path / "user/cgroup.subtree_control").read_text() == "+cpu"
    assert (tmp_path / "user/label/cgroup.subtree_control").read_text() == "+cpu"
    assert (tmp_path / "user/label/lab1/cpu.max").read_text() == "10000 5000"
    assert groups.process_files("lab1") == (f"{tmp_path}/user/label/lab1/cgroup.procs",)


def test_without_groups_the_reason_is_one_line_and_nothing_is_left(
    tmp_path: Path, lab: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree(monkeypatch, "1 1 0:1 / / rw - ext4 /dev/vda rw\n", "0::/\n")
    with pytest.raises(GroupError, match="no control groups for processors are mounted"):
        CpuGroups(plan_of(), "label", lab / GROUPS_FILE)
    (tmp_path / "cgroup.controllers").write_text("cpu cpuset\n")
    (tmp_path / "label").write_text("")  # in the way
    tree(monkeypatch, f"1 1 0:1 / {tmp_path} rw - cgroup2 cgroup2 rw\n", "0::/\n")
    with pytest.raises(GroupError, match=r"/label: File exists"):
        CpuGroups(plan_of(), "label", lab / GROUPS_FILE)


def test_recorded_groups_are_removed_as_far_as_they_exist(tmp_path: Path, lab: Path) -> None:
    (tmp_path / "label/lab1").mkdir(parents=True)
    names = [str(tmp_path / name) for name in ("label/lab1", "label/lab2", "label")]
    (lab / GROUPS_FILE).write_text(str(names).replace("'", '"'))
    assert remove_recorded(lab) and not (tmp_path / "label").exists()
    (lab / GROUPS_FILE).write_text('["/half')
    assert remove_recorded(lab)


def test_a_hierarchy_that_is_mounted_from_a_group_on(tmp_path: Path) -> None:
    assert cpu_groups._inside(tmp_path, "/docker/1", "/docker/1/sub") == tmp_path / "sub"
    assert cpu_groups._inside(tmp_path, "/", "/") == tmp_path


def test_a_share_is_part_of_the_identity_of_a_run() -> None:
    (without,) = plan(load_experiment(EXPERIMENT))
    (share,) = plan(load_experiment({**EXPERIMENT, "cores_per_host": 0.45}))
    assert without.spec.cores_per_host is None and share.spec.cores_per_host == 0.45
    assert without.id != share.id


@pytest.mark.parametrize(
    ("keys", "fault"),
    [
        ({"cores_per_host": 0}, "cores_per_host: expected a number from 0.05 to 4096, got 0"),
        ({"cores_per_host": 0.5, "hosts": "simulated"}, "only the hosts of a lab have a share"),
    ],
)
def test_a_share_that_cannot_be_is_a_fault(keys: dict[str, Any], fault: str) -> None:
    with pytest.raises(BadInput, match=fault):
        load_experiment({**EXPERIMENT, **keys})


def test_a_machine_with_too_few_processors_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    experiment = load_experiment({**EXPERIMENT, "cores_per_host": 0.7})
    with (
        pytest.raises(BadInput, match=r"3 hosts of 0.7 need 2.1 processors, and this machine has 2; at most 0.66"),
        backend("lab").cluster(experiment, accept_new_host_keys=False),
    ):
        pass


def test_the_timer_of_a_pacer_waits_for_each_period() -> None:
    timer = linux_calls.interval_timer(2_000_000)
    try:
        begin = time.monotonic_ns()
        periods = sum(int.from_bytes(os.read(timer, 8), sys.byteorder) for _ in range(5))
        assert periods >= 5  # more if this process had to wait for a processor
        assert time.monotonic_ns() - begin >= 5 * 2_000_000 - 1000
    finally:
        os.close(timer)
