"""A run on hosts with a share of the processors that ends early: what the tasks had, and what is recorded."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from driple.contracts.manifest import Manifest
from driple.contracts.run_spec import LEAST_STEPS
from driple.orchestrator.lab.cpu_groups import CpuGroups, GroupError
from driple.orchestrator.lab.layout import GROUPS_FILE, LabPlan
from driple.orchestrator.sweep.run_experiment import run
from driple.pipeline.traces.load_run import load_run

pytestmark = [pytest.mark.integration, pytest.mark.tf, pytest.mark.timeout(300)]

CORES = 0.25
WARMUP, MOST = 2, 200


@pytest.fixture
def groups_can(tmp_path: Path) -> None:
    """Skips where this user cannot create control groups."""
    plan = LabPlan(hosts=1, user="", uid=0, gid=0, shell="", path="", cores_per_host=CORES)
    try:
        CpuGroups(plan, f"driple-test-{os.getpid()}", tmp_path / GROUPS_FILE).remove()
    except GroupError as fault:
        pytest.skip(str(fault))


@pytest.mark.usefixtures("groups_can")
def test_a_run_with_a_share_that_ends_early(tmp_path: Path) -> None:
    experiment = {
        "name": "share",
        "setting": "cpu-p1w2-1g",
        "workloads": [{"model": "resnet20", "batch_size": 8, "optimiser": "sgd"}],
        "cores_per_host": CORES,
        "steps": MOST,
        "until": "90%",  # whatever this machine does meanwhile: the fewest steps
        "warmup_steps": WARMUP,
        "threads": 1,
        "retries": 0,
    }
    result = run(experiment, output=tmp_path)
    assert [each.failure for each in result.runs] == [None]
    folder = result.sealed[0].directory
    assert folder is not None
    manifest = Manifest.read(folder / "run.json")
    assert {host.share.cores for host in manifest.hosts.values() if host.share} == {CORES}
    assert manifest.share_not_as_asked is None and manifest.run.cores_per_host == CORES
    workers = [task.steps for task in manifest.tasks if task.task.startswith("worker")]
    assert len(set(workers)) == 1  # a synchronous job ends for all at once
    assert WARMUP + LEAST_STEPS <= workers[0] < WARMUP + MOST
    for trace in load_run(folder).tasks.values():
        used, seconds = trace.readings["task_cpu_ns"], trace.window.duration_s
        inside = (used.t_s >= trace.window.start_s) & (used.t_s <= trace.window.end_s)
        spent_s = float(used.value[inside][-1] - used.value[inside][0]) / 1e9
        assert spent_s < 1.3 * CORES * seconds, trace.task
