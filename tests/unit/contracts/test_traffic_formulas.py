"""Bytes per step by strategy and topology, for four workers and a model of 12 bytes, computed by hand."""

from __future__ import annotations

from typing import Any

import pytest

from driple.contracts.run_spec import Measurement, RunSpec, Workload
from driple.contracts.setting import Setting
from driple.contracts.strategy import TOPOLOGIES
from driple.contracts.traffic_formulas import ROOT, machines_of, received, sent, step_traffic, trees

SIZES = (8, 4)
WORKERS = tuple(f"worker:{number}" for number in range(4))


def run(together: tuple[tuple[str, ...], ...] = (), setting: str = "cpu-p0w4-1g", **workload: str) -> RunSpec:
    parsed = Setting.parse(setting)
    shared: dict[str, Any] = {"strategy": "allreduce", "framework": "torch", "backend": "gloo", **workload}
    return RunSpec(
        parsed,
        Workload("lenet", "imagenet", 2, image_size=28, **shared),
        Measurement(steps=1),
        together or tuple((task,) for task in parsed.tasks),
    )


@pytest.mark.parametrize(
    ("topology", "sends"),
    [
        ("ring", (18, 18, 18, 18)),  # 2 (n - 1) / n M
        ("clique", (18, 18, 18, 18)),
        ("star", (36, 12, 12, 12)),
        ("tree", (36, 12, 12, 12)),  # of machines with a worker each
        ("binary_tree_star", (24, 24, 12, 12)),  # 1 and 2 below 0, 3 below 1
    ],
)
def test_what_each_worker_sends(topology: str, sends: tuple[float, ...]) -> None:
    traffic = step_traffic(run(topology=topology), SIZES)
    assert tuple(sent(traffic, worker) for worker in WORKERS) == sends
    assert tuple(received(traffic, worker) for worker in WORKERS) == sends
    assert sum(traffic.values()) == 2 * 3 * 12  # every all-reduce moves 2 (n - 1) M in all


def test_who_sends_to_whom() -> None:
    for backend, step in (("gloo", -1), ("mpi", 1)):
        ring = step_traffic(run(topology="ring", backend=backend), SIZES)
        assert set(ring) == {(WORKERS[n], WORKERS[(n + step) % 4]) for n in range(4)}
    clique = step_traffic(run(topology="clique"), SIZES)
    assert set(clique) == {(a, b) for a in WORKERS for b in WORKERS if a != b} and set(clique.values()) == {6.0}


def test_trees_put_the_workers_of_a_machine_below_its_first() -> None:
    together = (("worker:1", "worker:0"), ("worker:3", "worker:2"))
    machines = machines_of(run(together, topology="tree"))
    assert machines == (0, 0, 1, 1)
    assert trees("tree", machines) == ((ROOT, 0, 0, 2),)
    assert trees("star", machines) == ((ROOT, 0, 0, 0),)
    assert trees("binary_tree_star", (0, 1, 1, 2, 3)) == ((ROOT, 0, 1, 0, 1),)


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_every_worker_but_the_root_has_a_parent_and_no_path_is_a_circle(topology: str) -> None:
    for tree in trees(topology, (0, 0, 1, 2, 2, 3)):
        assert sum(parent == ROOT for parent in tree) == 1
        for worker in range(len(tree)):
            path = [worker]
            while tree[path[-1]] != ROOT:
                path.append(tree[path[-1]])
                assert len(path) <= len(tree)


def test_pair_averaging_takes_one_model_a_step() -> None:
    traffic = step_traffic(run(strategy="pair_averaging", update="async"), SIZES)
    assert {sent(traffic, worker) for worker in WORKERS} == {12.0}
    assert len(traffic) == 12


def test_parameter_servers_split_the_model_after_the_counter_of_steps() -> None:
    servers = run(setting="cpu-p2w2-1g", strategy="ps", framework="tensorflow", backend="grpc")
    traffic = step_traffic(servers, (4, 8, 2))  # ps:0 has the counter of 8 bytes, so ps:1 gets 4 and 8, ps:0 2
    assert traffic["ps:0", "worker:1"] == traffic["worker:1", "ps:0"] == 2
    assert traffic["ps:1", "worker:0"] == traffic["worker:0", "ps:1"] == 12
    assert sent(traffic, "worker:0") == 14 and sent(traffic, "ps:1") == 24


def test_one_worker_sends_nothing() -> None:
    assert step_traffic(run(setting="cpu-p0w1-1g", topology="ring"), SIZES) == {}
    assert step_traffic(run(setting="cpu-p0w1-1g", topology="clique"), SIZES) == {}
