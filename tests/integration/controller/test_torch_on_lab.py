"""PyTorch runs on the lab: sealed, with the traffic that the formulas say, in a dataset; a killed worker ends a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from lab_rig import Rig, attempt_of, half_done, manifest_of

import driple
from driple.contracts.manifest import FAILED, SEALED, Manifest
from driple.contracts.protocol import requests
from driple.contracts.run_dir import RunPaths
from driple.contracts.traffic_formulas import received, sent, step_traffic
from driple.inspector.data.dataset_rows import read_examples
from driple.orchestrator.sweep.scheduler import Sweep
from driple.pipeline.datasets.build import build_dataset
from driple.pipeline.traffic.run_traffic import run_job
from driple.workloads.torch_jobs.training import trainable_bytes
from driple.workloads.torch_models.torch_zoo import network

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

SETTING = "cpu-p0w3-1g"
MODEL = "model: lenet, image_size: 32, batch_size: 4, width: 0.5, framework: torch"
TOPOLOGIES = ("ring", "star", "clique")


@pytest.fixture(scope="module")
def sealed(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Path, Manifest]]:
    folder = tmp_path_factory.mktemp("torch")
    grid = f"{{{MODEL}, strategy: allreduce, topology: [{', '.join(TOPOLOGIES)}]}}"
    results, _ = rig.sweep(folder, setting=SETTING, workload=grid, length="steps: 20")
    assert [result.status for result in results] == ["sealed"] * len(TOPOLOGIES)
    assert rig.left() == []
    roots = sorted((folder / "traces" / "faults").glob("cpu-*"))
    return [(root, Manifest.read(root / "run.json")) for root in roots]


def test_run_json_says_what_ran(sealed: list[tuple[Path, Manifest]]) -> None:
    for _, manifest in sealed:
        topology = manifest.run.workload.topology
        assert manifest.status == SEALED
        with torch.device("meta"):
            gradient_bytes = sum(trainable_bytes(network(manifest.run.workload)))
        assert manifest.trained_with == {
            "torch": torch.__version__,
            "backend": "gloo",
            "topology": topology,
            "gradient_bytes": str(gradient_bytes),
        }
        assert {task.traffic_source for task in manifest.tasks} == {"nic:eth0"}
    assert {manifest.run.workload.topology for _, manifest in sealed} == set(TOPOLOGIES)


def test_the_interface_carries_what_the_formula_says(sealed: list[tuple[Path, Manifest]]) -> None:
    """Segmentation is left to the interface, so headers count once per 64 KB: 0.1 %."""
    for root, manifest in sealed:
        with torch.device("meta"):
            sizes = trainable_bytes(network(manifest.run.workload))
        traffic = step_traffic(manifest.run, sizes)
        paths = RunPaths(root.parent, "", root.name)
        for task in manifest.run.setting.tasks:
            steps = pq.read_table(paths.steps(task)).slice(manifest.run.measurement.warmup_steps)
            ends = [steps["start_mono_ns"][0].as_py(), steps["end_mono_ns"][-1].as_py()]
            for column, expected in (("nic_tx_bytes", sent), ("nic_rx_bytes", received)):
                trace = pq.read_table(paths.trace(task), columns=["t_mono_ns", column]).drop_null()
                times, counts = (trace[name].to_numpy().astype(float) for name in ("t_mono_ns", column))
                begin, end = np.interp(ends, times, counts)
                ratio = (end - begin) / len(steps) / expected(traffic, task)
                assert 0.99 < ratio < 1.02, (manifest.run.workload.topology, task, column, ratio)


def test_driple_traffic_knows_the_formula(sealed: list[tuple[Path, Manifest]]) -> None:
    for root, manifest in sealed:
        relative = run_job(root).relative_to_formula()
        assert sorted(relative) == sorted(manifest.run.setting.tasks)
        # The interfaces count headers too, and tasks are not at the same point when the first worker begins to measure.
        assert all(0.95 < ratio < 1.05 for ratio in relative.values()), relative


def test_the_ring_goes_where_the_formula_says(sealed: list[tuple[Path, Manifest]]) -> None:
    ((root, manifest),) = [pair for pair in sealed if pair[1].run.workload.topology == "ring"]
    paths = RunPaths(root.parent, "", root.name)
    job = json.loads(paths.job.read_text())
    task_at = {task["address"].rpartition(":")[0]: task["task"] for task in job["tasks"]}
    most = set()
    for task in manifest.run.setting.tasks:
        sent_to: dict[str, int] = {}
        for flow in pq.read_table(paths.flows(task)).to_pylist():
            if flow["of_task"] == 1:
                peer = task_at[flow["remote_address"]]
                sent_to[peer] = max(sent_to.get(peer, 0), flow["bytes_acked"] or 0)
        most.add((task, max(sent_to, key=lambda peer: sent_to[peer])))
    assert most == set(step_traffic(manifest.run, [4]))


def test_a_dataset_has_rows_with_targets_and_a_graph(sealed: list[tuple[Path, Manifest]], tmp_path: Path) -> None:
    result = build_dataset([root for root, _ in sealed], output=tmp_path)
    assert not result.set_aside
    (path,) = tmp_path.glob("*.parquet")
    names = ["framework", "backend", "topology", "graph", "graph_kind", "bytes_sent", "step_s", "gpu_burst_s"]
    rows = pq.read_table(path, columns=names).to_pylist()
    assert len(rows) == 3 * len(TOPOLOGIES)
    with torch.device("meta"):
        gradients = sum(trainable_bytes(network(sealed[0][1].run.workload)))
    for row in rows:
        assert (row["framework"], row["backend"], row["graph_kind"]) == ("torch", "gloo", "ops")
        assert row["bytes_sent"] == gradients
        assert row["step_s"] > 0 and row["gpu_burst_s"] > 0  # of a CPU setting: its processor time
    assert len({row["graph"] for row in rows}) == 1  # the topology is no part of a worker's graph
    # An inspector sees three workloads, and simulates each from the graph of its run.
    examples = read_examples(tmp_path, SETTING)
    assert sorted(str(item.workload["topology"]) for item in examples.items) == sorted(TOPOLOGIES)
    for root, manifest in sealed:
        graph = RunPaths(root.parent, "", root.name).graph("worker")
        (answer,) = driple.predict(graph=graph, setting=SETTING)
        assert answer.traffic is not None and answer.traffic.topology == manifest.run.workload.topology
        assert answer.traffic.pairs == pytest.approx(step_traffic(manifest.run, [gradients]))
    # A second build takes the rows from the file.
    assert not build_dataset([root for root, _ in sealed], output=tmp_path).set_aside


def test_a_killed_worker_fails_the_run_cleanly(rig: Rig, tmp_path: Path) -> None:
    def kill(sweep: Sweep) -> None:
        state = attempt_of(sweep).states["worker:1"]
        state.client.ask(requests.Run(argv=("kill", "-9", str(state.pid)), limit_s=10.0))

    grid = f"{{{MODEL}, strategy: allreduce, topology: clique}}"
    (result,), seen = rig.sweep(
        tmp_path, setting=SETTING, workload=grid, length="steps: 100000", during=kill, retries=0
    )
    assert result.status == "failed" and manifest_of(tmp_path).status == FAILED
    assert "worker:1" in str(seen.failures[0]) and "SIGKILL" in str(seen.failures[0])
    assert rig.left() == [] and not half_done(tmp_path)
