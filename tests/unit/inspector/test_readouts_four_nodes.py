"""Every readout on two graphs of different size, with answers worked out by hand."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from driple.contracts.errors import BadInput
from driple.inspector.network.batching.dense import dense
from driple.inspector.network.batching.graph_batch import Graphs
from driple.inspector.network.batching.sparse import sparse
from driple.inspector.network.readouts.attention import AttentionReadout
from driple.inspector.network.readouts.cost import CostReadout
from driple.inspector.network.readouts.max import MaxReadout
from driple.inspector.network.readouts.mean import MeanReadout
from driple.inspector.network.readouts.set2set import Set2SetReadout

Batcher = Callable[[list[Tensor], list[Tensor]], Graphs]
needs_dgl = pytest.mark.skipif(importlib.util.find_spec("dgl") is None, reason="DGL is not installed")
STATES = [[1.0, 2.0, 4.0, -7.0], [-3.0, -5.0]]


@pytest.fixture(params=[dense, pytest.param(sparse, marks=needs_dgl)], ids=["dense", "dgl"])
def graphs(request: pytest.FixtureRequest) -> Graphs:
    batcher: Batcher = request.param
    edges = [torch.tensor([[0, 1], [1, 2], [2, 3]]), torch.tensor([[0, 1]])]
    return batcher([torch.tensor(states)[:, None] for states in STATES], edges)


def test_mean_and_max(graphs: Graphs) -> None:
    assert MeanReadout(1)(graphs, graphs.features).flatten().tolist() == [0.0, -4.0]
    assert MaxReadout(1)(graphs, graphs.features).flatten().tolist() == [4.0, -3.0]


def test_cost_adds_up_over_nodes(graphs: Graphs) -> None:
    readout = CostReadout(1, 1)
    with torch.no_grad():
        readout.cost.weight.fill_(0.5)
        readout.cost.bias.fill_(3.0)
    expected = [math.log(sum(math.exp(0.5 * x + 3) for x in states)) for states in STATES]
    read = readout(graphs, graphs.features)
    assert read.shape == (2, readout.outputs)
    assert read[:, 0].tolist() == pytest.approx(expected, rel=1e-5)
    assert read[:, 1].tolist() == [0.0, -4.0]


def test_cost_of_large_states_stays_finite(graphs: Graphs) -> None:
    readout = CostReadout(1, 1)
    with torch.no_grad():
        readout.cost.weight.fill_(1000.0)
        readout.cost.bias.zero_()
    assert readout(graphs, graphs.features)[:, 0].tolist() == pytest.approx([4000, -3000])


def test_attention(graphs: Graphs) -> None:
    readout = AttentionReadout(1, 1)
    with torch.no_grad():
        readout.enter.weight.fill_(0.5)
        readout.enter.bias.fill_(0.25)
        readout.score.weight.fill_(2.0)

    def weighted(states: list[float]) -> float:
        weights = [math.exp(2 * math.tanh(0.5 * x + 0.25)) for x in states]
        return sum(a * x for a, x in zip(weights, states, strict=True)) / sum(weights)

    assert readout(graphs, graphs.features).flatten().tolist() == pytest.approx(
        [weighted(states) for states in STATES], rel=1e-5
    )


@pytest.mark.parametrize("steps", ["1", "3", "N"])
def test_set2set(graphs: Graphs, steps: str) -> None:
    torch.manual_seed(3)
    readout = Set2SetReadout(1, steps)
    read = readout(graphs, graphs.features)
    for states, found in zip(STATES, read.tolist(), strict=True):
        x = torch.tensor(states)
        query = memory = summed = torch.zeros(1)
        for _ in range(len(states) if steps == "N" else int(steps)):
            query, memory = readout.lstm(torch.cat([query, summed])[None], (query[None], memory[None]))
            query, memory = query[0], memory[0]
            summed = (torch.softmax(x * query, 0) * x).sum().reshape(1)
        assert found == pytest.approx([query.item(), summed.item()], rel=1e-5)


def test_steps_that_cannot_be_are_refused_at_once() -> None:
    with pytest.raises(BadInput, match="unknown 'often'"):
        Set2SetReadout(4, "often")
