"""Stored graphs of the zoo equal those that TensorFlow builds, op by op."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from driple.contracts.setting import Setting
from driple.pipeline.graph.public import OpGraph, read_graph, stored_graph
from driple.workloads.runtime.job import workload_of

pytestmark = [pytest.mark.tf, pytest.mark.integration]


@pytest.mark.parametrize(
    ("model", "setting", "batch_size", "update", "sharding"),
    [
        ("resnet56", "cpu-p2w2-1g", 64, "sync", "balanced"),
        ("ncf", "v100-p5w3-1g", 1, "async", "balanced"),
        ("nmt_small", "cpu-p3w2-1g", 5, "sync", "round_robin"),
        ("mobilenet", "v100-p0w4-1g", 200, "sync", "balanced"),
    ],
)
def test_a_stored_graph_is_the_one_that_tensorflow_builds(
    tmp_path: Path, checkout: Path, model: str, setting: str, batch_size: int, update: str, sharding: str
) -> None:
    out = tmp_path / "g.parquet"
    command = [sys.executable, "-m", "driple.workloads.cli", "graph", "--model", model, "--out", str(out)]
    command += ["--setting", setting, "--batch-size", str(batch_size), "--update", update, "--sharding", sharding]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    built = read_graph(out)
    geometry = Setting.parse(setting)
    strategy = "ps" if geometry.servers else "allreduce"
    workload = workload_of(model, None, batch_size, update=update, sharding=sharding, strategy=strategy)
    stored = stored_graph(workload, geometry, checkout / "zoo_graphs")
    assert stored is not None
    assert stored.ops == built.ops
    for field in fields(OpGraph):
        ours, theirs = getattr(stored, field.name), getattr(built, field.name)
        assert np.array_equal(ours, theirs, equal_nan=field.name == "flops"), field.name
