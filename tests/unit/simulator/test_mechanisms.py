"""Timelines, segments, clusters and collectives, against cases that can be computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from driple.contracts.strategy import TOPOLOGIES
from driple.pipeline.graph.public import WINDOW, TrainingStep, Transfer
from driple.simulator.collectives import AllReduceJob, pair_count, phases, rounds
from driple.simulator.host_model import HostModel
from driple.simulator.machines import Cluster
from driple.simulator.op_costs import OpCosts
from driple.simulator.segments import Moved, Segment, cut
from driple.simulator.timeline import timeline

MB = 1e6


def host(**more: float) -> HostModel:
    names = ("rpc_s", "server_send_s_per_byte", "server_receive_s_per_byte", "apply_s_per_byte", "worker_s_per_byte")
    zeros = dict.fromkeys((*names, "session_s", "barrier_s", "noise", "start_phase"), 0.0)
    return HostModel(**{**zeros, **more})


def step(pulls: tuple[Transfer, ...], pushes: tuple[Transfer, ...], reduced: tuple[Transfer, ...] = ()) -> TrainingStep:
    four = np.ones(4)
    windows: NDArray[np.int64] = np.zeros((4, len(WINDOW)), dtype=np.int64)
    ops = ("MatMul",) * 4
    return TrainingStep(ops, four, four, four, windows, four, four > 0, pulls, pushes, reduced)


def costs(*wall: float) -> OpCosts:
    return OpCosts(np.array(wall), np.array(wall) / 2, np.array(wall) / 4)


def test_a_timeline_is_linear_between_its_events_and_flat_after_the_last() -> None:
    line = timeline([(1.0, 3.0, 10.0)])
    assert line.until(np.array([0.0, 1.0, 1.5, 3.0, 7.0])).tolist() == [0.0, 0.0, 2.5, 10.0, 10.0]


def test_stretches_one_after_the_other_and_at_once_add_up_to_their_amounts() -> None:
    # 0 to 1 s: 2 a second; 1 to 2 s: 2 + 4; 2 to 3 s: nothing; 3 to 4 s: 1.
    line = timeline([(0.0, 2.0, 4.0), (1.0, 2.0, 4.0), (3.0, 4.0, 1.0)])
    assert line.until(np.array([0.5, 1.0, 1.5, 2.0, 2.9, 3.5])) == pytest.approx([1.0, 2.0, 5.0, 8.0, 8.0, 8.5])
    assert line.total[-1] == pytest.approx(9.0)


def test_a_timeline_never_falls() -> None:
    pieces = [(0.1 * k, 0.1 * k + 0.05, 1e9) for k in range(1000)]
    assert np.all(np.diff(timeline(pieces).total) >= 0)


def test_segments_have_about_equal_times_and_lose_nothing() -> None:
    made = cut(step((), ()), costs(1.0, 1.0, 1.0, 1.0), 2)
    assert [(one.wall_s, one.busy_s, one.memory_s) for one in made] == [(2.0, 1.0, 0.5)] * 2


def test_an_op_is_in_the_segment_of_its_middle() -> None:
    # Middles at 0.5, 2.5, 5.5 and 7.5 of 8 s: with two pieces, the border is at 4 s.
    assert [one.wall_s for one in cut(step((), ()), costs(1.0, 3.0, 3.0, 1.0), 2)] == [4.0, 4.0]
    # With one long op at the start everything else is in the last segment.
    assert [one.wall_s for one in cut(step((), ()), costs(9.0, 0.1, 0.1, 0.8), 2)] == [9.0, 1.0]


def test_tensors_are_in_the_segment_of_their_op_by_server() -> None:
    pulls = (Transfer(0, 0, 10.0), Transfer(1, 0, 20.0), Transfer(3, 1, 5.0))
    pushes = (Transfer(2, 1, 7.0),)
    first, last = cut(step(pulls, pushes, (Transfer(3, -1, 8.0),)), costs(1.0, 1.0, 1.0, 1.0), 2)
    assert (first.pulls, last.pulls) == ({0: Moved(30.0, 2)}, {1: Moved(5.0, 1)})
    assert (first.pushes, last.pushes) == ({}, {1: Moved(7.0, 1)})
    assert (first.reduced, last.reduced) == (Moved(), Moved(8.0, 1))


def test_a_path_between_machines_has_both_links_and_on_one_machine_none() -> None:
    cluster = Cluster({"ps:0": 0, "worker:0": 0, "worker:1": 1}, host(), 100 * MB)
    assert cluster.path("ps:0", "worker:0") == {}
    assert cluster.path("ps:0", "worker:1") == {"out 0": 1e-8, "in 1": 1e-8}
    assert cluster.path("worker:1", "ps:0") == {"out 1": 1e-8, "in 0": 1e-8}


def test_only_workers_with_a_gpu_cross_pcie() -> None:
    machines = {"ps:0": 0, "worker:0": 0, "worker:1": 1}
    own = host(pcie_bytes_per_s=50 * MB)
    cluster = Cluster(machines, own, None)
    assert cluster.path("ps:0", "worker:0") == {"pcie down 0": 2e-8}
    assert cluster.path("worker:1", "ps:0") == {"pcie up 1": 2e-8}
    assert Cluster(machines, own, None, gpu=False).path("ps:0", "worker:0") == {}


def test_processors_are_shared_by_machine_or_by_all_hosts_of_a_lab() -> None:
    machines, seconds = {"ps:0": 0, "worker:0": 1, "worker:1": 1}, {"ps:0": 1.0, "worker:0": 2.0, "worker:1": 4.0}
    own = host(cores=2.0)
    assert Cluster(machines, own, None).processors(seconds) == {"cores 0": 0.5, "cores 1": 3.0}
    assert Cluster(machines, own, None, one_processor=True).processors(seconds) == {"cores 0": 3.5}
    assert Cluster(machines, host(), None).processors(seconds) == {}


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_pairs_are_those_of_the_phases(topology: str) -> None:
    for workers in (3, 4, 9):
        found = {frozenset(pair[:2]) for phase in phases(topology, range(workers)) for pair in phase}
        assert pair_count(topology, workers) == len(found)
        assert pair_count("pair_averaging", workers) == workers * (workers - 1) // 2


def reduce_s(topology: str, workers: int, latency_s: float = 0.0) -> float:
    """Seconds of one reduction of 100 MB over links of 100 MB/s, without computing."""
    parts = [Segment(1e-9, 1e-9, 0.0, reduced=Moved(100 * MB, 1))]
    machines = {f"worker:{k}": k for k in range(workers)}
    cluster = Cluster(machines, host(latency_s=latency_s), 100 * MB)
    job = AllReduceJob(cluster, parts, workers, topology=topology, steps=2, seed=1)
    job.run()
    return float(job.begun[0][2] - job.begun[0][1])


@pytest.mark.parametrize("workers", [2, 3, 4, 8])
def test_closed_forms_of_a_reduction_of_one_second(workers: int) -> None:
    assert reduce_s("ring", workers) == pytest.approx(2 * (workers - 1) / workers)
    # All others share the link of the first worker, inward and then outward.
    assert reduce_s("star", workers) == reduce_s("tree", workers) == pytest.approx(2 * (workers - 1))
    # Each of the W stars has a W-th of the bytes, and all links are equally busy.
    assert reduce_s("clique", workers) == pytest.approx(2 * (workers - 1) / workers)


def test_closed_form_of_a_full_tree() -> None:
    # 7 workers: 2 levels below the root. At each level every parent takes two children over one link, twice.
    assert reduce_s("binary_tree_star", 7) == pytest.approx(2 * 2 * 2.0)
    # 4 workers: the deepest level has one child, which is alone on its link.
    assert reduce_s("binary_tree_star", 4) == pytest.approx(2 * (1.0 + 2.0))
    assert [len(phase) for phase in phases("binary_tree_star", range(7))] == [4, 2, 2, 4]


@pytest.mark.parametrize(
    ("topology", "workers", "count"), [("ring", 8, 14), ("binary_tree_star", 7, 4), ("star", 8, 2)]
)
def test_latency_is_that_of_the_rounds(topology: str, workers: int, count: int) -> None:
    assert rounds(topology, range(workers)) == count
    assert reduce_s(topology, workers, 0.5) - reduce_s(topology, workers) == pytest.approx(0.5 * count)
