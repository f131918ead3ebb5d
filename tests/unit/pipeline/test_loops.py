"""Ops of while loops: which they are, and how often they run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.pipeline.graph.loops import looped_ops
from driple.pipeline.graph.public import OpGraph, read_graph, stored_graph, stored_step

GRAPHS = Path(__file__).parents[2] / "data" / "graphs"
SETTING = Setting.parse("v100-p1w2-1g")

# x -> Enter -> Merge -> Switch -> Mul -> NextIteration -> Merge; Switch -> Exit -> Sum; Const -> Mul, Const -> Less
LOOP = ("Placeholder", "Enter", "Merge", "Less", "LoopCond", "Switch", "Mul", "Const", "NextIteration", "Exit", "Sum")
EDGES = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (2, 5), (5, 6), (7, 6), (6, 8), (8, 2), (5, 9), (9, 10)]


def looped(ops: tuple[str, ...], edges: list[tuple[int, int]]) -> list[str]:
    found = looped_ops(ops, np.array(edges, dtype=np.int64).reshape(-1, 2))
    return [op for op, inside in zip(ops, found, strict=True) if inside]


def test_the_body_and_the_condition_are_looped_and_what_leads_in_and_out_is_not() -> None:
    assert looped(LOOP, EDGES) == ["Merge", "Less", "LoopCond", "Switch", "Mul", "NextIteration"]


def test_a_loop_in_a_loop_is_found_once() -> None:
    inner = [(source + 8, destination + 8) for source, destination in EDGES[1:]]
    ops = (*LOOP[:9], *LOOP[1:])  # the inner loop has its Enter after the outer body, and its Exit goes nowhere
    edges = [*EDGES[:10], (6, 9), *inner]
    assert looped(ops, edges).count("Mul") == 2
    assert "Sum" not in looped(ops, edges)


def test_a_graph_without_loops_has_none() -> None:
    graph = OpGraph(("Conv2D", "Switch", "Merge"), np.zeros(3), np.zeros(3), np.array([[0, 1], [1, 2]]))
    assert not graph.looped.any()
    assert graph.executions(50).tolist() == [1.0, 1.0, 1.0]


def test_a_loop_of_a_file() -> None:
    graph = read_graph(GRAPHS / "loop.pb")
    names = dict(zip(graph.ops, graph.executions(7).tolist(), strict=True))
    assert names["NextIteration"] == 7.0
    assert names["Enter"] == 1.0
    assert names["Exit"] == 1.0


@pytest.mark.parametrize("model", ["nmt_small", "nmt_big"])
def test_the_work_of_a_step_is_that_of_the_simulator_which_reads_names(model: str) -> None:
    workload = Workload(model, "europarl", 16, sequence_length=50)
    graph, step = stored_graph(workload, SETTING), stored_step(workload, SETTING)
    assert graph is not None and step is not None
    every = float(np.nansum(graph.flops * graph.executions(50)))
    assert every > 1.1 * np.nansum(graph.flops)
    assert every == pytest.approx((step.flops * step.executions).sum(), rel=2e-3)
