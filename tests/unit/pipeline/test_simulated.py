"""The cost model: by hand on tiny graphs, and the files it makes."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest

from driple.contracts.metrics import COLUMNS
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.pipeline.datasets import dataset_file as files
from driple.pipeline.graph.public import OpGraph

sys.path.append(str(Path(__file__).resolve().parents[3] / "benchmarks"))
from simulated_targets import BARRIER, BEGIN_S, DEVICES, HIDDEN, simulate, write_dataset  # noqa: E402

CPU = Setting.parse("cpu-p1w2-1g")
GRAPH = OpGraph(
    ops=("MatMul", "Relu"),
    bytes=np.array([4000.0, 4000.0]),
    flops=np.array([7e9, np.nan]),
    edges=np.array([[0, 1]]),
    bytes_received=2e6,
    bytes_sent=1e6,
)


def test_an_op_takes_its_arithmetic_or_its_bytes_whichever_is_longer() -> None:
    cycle = simulate(GRAPH, CPU, "async")
    device = DEVICES["cpu"]
    product = 7e9 / (0.7 * device.flops_per_s)
    relu = 8000 / device.bytes_per_s
    assert cycle.compute_s == pytest.approx(product + relu + 2 * device.op_s)
    assert cycle.busy_s == pytest.approx(product + relu)
    assert cycle.memory_s == pytest.approx(relu)


def test_two_workers_share_the_link_of_one_server() -> None:
    moving, begin = 2e6 / (1e9 / 8 * 0.94), BEGIN_S[False]
    for setting, expected in (("cpu-p1w1-1g", moving), ("cpu-p1w2-1g", 2 * moving), ("cpu-p2w2-1g", moving)):
        assert simulate(GRAPH, Setting.parse(setting), "async").receive_s == pytest.approx(begin + expected)


def test_the_step_is_what_does_not_hide_and_the_slowest_worker_decides() -> None:
    cycle = simulate(GRAPH, CPU, "async")
    moved = cycle.receive_s + cycle.send_s
    assert cycle.step_s == pytest.approx(cycle.compute_s + moved - HIDDEN * moved)
    assert simulate(GRAPH, CPU, "sync").step_s == pytest.approx(BARRIER * cycle.step_s)


@pytest.mark.parametrize("setting", ["cpu-p1w2-1g", "v100-p2w2-pcie"])
def test_rows_are_marked_and_the_same_seed_gives_the_same_file(tmp_path: Path, setting: str) -> None:
    graphs = {Workload("resnet20", "cifar10", size): GRAPH for size in (8, 16)}
    path = write_dataset(graphs, Setting.parse(setting), tmp_path)
    first = path.read_bytes()
    dataset = files.read(path, setting)
    assert {row["provenance"] for row in dataset.rows} == {"simulated"}
    assert len(dataset.rows) == 2 * len(Setting.parse(setting).tasks)
    worker = next(row for row in dataset.rows if row["role"] == "worker")
    unknown = [column for column in COLUMNS if worker[column] is None]
    assert unknown == ([c for c in COLUMNS if c.startswith("gpu_mem")] if setting.startswith("cpu") else [])
    assert write_dataset(graphs, Setting.parse(setting), tmp_path).read_bytes() == first
    assert write_dataset(graphs, Setting.parse(setting), tmp_path, seed=1).read_bytes() != first


def test_noise_is_as_asked(tmp_path: Path) -> None:
    graphs = {
        Workload("resnet20", "cifar10", size): dataclasses.replace(GRAPH, bytes_received=2e6) for size in range(1, 401)
    }
    rows = files.read(write_dataset(graphs, CPU, tmp_path, noise=0.1), str(CPU)).rows
    spread = np.std([np.log(row["step_s"]) for row in rows if row["role"] == "worker" and row["update"] == "sync"])
    assert spread == pytest.approx(0.1, rel=0.15)
