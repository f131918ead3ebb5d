"""Runs that Horovod trains on the lab: refused where it is missing; else sealed, with the traffic of a ring."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from lab_rig import Rig

from driple.contracts.manifest import Manifest
from driple.contracts.run_dir import RunPaths
from driple.contracts.traffic_formulas import sent, step_traffic
from driple.workloads.torch_jobs.training import trainable_bytes
from driple.workloads.torch_models.torch_zoo import network

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

INSTALLED = find_spec("horovod") is not None
GRID = "{{model: lenet, image_size: 32, batch_size: 4, strategy: allreduce, framework: {0}, backend: {1}}}"
BACKENDS = ("horovod_gloo", "horovod_mpi")


@pytest.mark.skipif(INSTALLED, reason="horovod is installed")
def test_a_host_without_it_is_refused_with_the_recipe(rig: Rig, tmp_path: Path) -> None:
    (result,), seen = rig.sweep(
        tmp_path, setting="cpu-p0w2-1g", workload=GRID.format("torch", "horovod_gloo"), retries=0
    )
    assert result.status == "failed"
    (failure,) = map(str, seen.failures)
    assert "it needs driple, torch, horovod, and has no horovod; install" in failure
    assert "install driple[workloads-torch] (and horovod as in docs/guides/horovod.md) there" in failure
    assert len(failure.splitlines()) == 1
    assert rig.left() == []


@pytest.mark.skipif(not INSTALLED, reason="horovod is not installed")
@pytest.mark.parametrize("framework", ["torch", pytest.param("tensorflow", marks=pytest.mark.tf)])
def test_the_interface_carries_what_the_formula_says(rig: Rig, tmp_path: Path, framework: str) -> None:
    """Gloo is exact. MPI has headers of its own and Horovod negotiates each step, but no tensor goes twice."""
    results, seen = rig.sweep(
        tmp_path, setting="cpu-p0w3-1g", workload=GRID.format(framework, f"[{', '.join(BACKENDS)}]"), length="steps: 20"
    )
    assert [result.status for result in results] == ["sealed"] * 2, seen.failures
    for root in (tmp_path / "traces" / "faults").glob("cpu-*"):
        manifest = Manifest.read(root / "run.json")
        workload = manifest.run.workload
        assert manifest.trained_with["backend"] == workload.backend and manifest.trained_with["horovod"]
        with torch.device("meta"):
            sizes = trainable_bytes(network(workload))
        traffic = step_traffic(manifest.run, sizes)
        paths = RunPaths(root.parent, "", root.name)
        for task in manifest.run.setting.tasks:
            steps = pq.read_table(paths.steps(task)).slice(manifest.run.measurement.warmup_steps)
            ends = [steps["start_mono_ns"][0].as_py(), steps["end_mono_ns"][-1].as_py()]
            trace = pq.read_table(paths.trace(task), columns=["t_mono_ns", "nic_tx_bytes"]).drop_null()
            times, counts = (trace[name].to_numpy().astype(float) for name in trace.column_names)
            begin, end = np.interp(ends, times, counts)
            ratio = (end - begin) / len(steps) / sent(traffic, task)
            assert 0.97 < ratio < 1.03, (workload.label, task, ratio)
        assert _ring(paths, manifest) == set(traffic)
    assert rig.left() == []


def _ring(paths: RunPaths, manifest: Manifest) -> set[tuple[str, str]]:
    """To which other task each one sends most."""
    job = json.loads(paths.job.read_text())
    task_at = {task["address"].rpartition(":")[0]: task["task"] for task in job["tasks"]}
    found = set()
    for task in manifest.run.setting.tasks:
        sent_to: dict[str, int] = {}
        for flow in pq.read_table(paths.flows(task)).to_pylist():
            if flow["of_task"] == 1:
                peer = task_at[flow["remote_address"]]
                sent_to[peer] = max(sent_to.get(peer, 0), flow["bytes_acked"] or 0)
        found.add((task, max(sent_to, key=lambda peer: sent_to[peer])))
    return found
