"""Every layer on a graph of four nodes, with answers worked out by hand: a path 0 - 1 - 2, and node 3 alone."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from driple.inspector.network.batching.dense import dense
from driple.inspector.network.batching.graph_batch import Graphs
from driple.inspector.network.batching.sparse import sparse
from driple.inspector.network.layers.gat import GatLayer
from driple.inspector.network.layers.gcn import GcnLayer
from driple.inspector.network.layers.gin import GinLayer
from driple.inspector.network.layers.gru import StateCell
from driple.inspector.network.layers.mpnn import MpnnLayer
from driple.inspector.network.layers.pna import PnaLayer

Batcher = Callable[[list[Tensor], list[Tensor]], Graphs]
needs_dgl = pytest.mark.skipif(importlib.util.find_spec("dgl") is None, reason="DGL is not installed")
X = [1.0, 2.0, 4.0, 8.0]


@pytest.fixture(params=[dense, pytest.param(sparse, marks=needs_dgl)], ids=["dense", "dgl"])
def graphs(request: pytest.FixtureRequest) -> Graphs:
    batcher: Batcher = request.param
    return batcher([torch.tensor(X)[:, None]], [torch.tensor([[0, 1], [1, 2]])])


def set_all(module: torch.nn.Module, **values: float | list[float]) -> None:
    """Every weight to what is said by its name, else to 0."""
    with torch.no_grad():
        for name, weight in module.named_parameters():
            value = values.pop(name.replace(".", "_"), 0.0)
            weight.copy_(torch.tensor(value).reshape(weight.shape) if isinstance(value, list) else torch.tensor(value))
    assert not values


def of(layer: torch.nn.Module, graphs: Graphs) -> list[float]:
    answer: list[float] = layer(graphs, graphs.features).flatten().tolist()
    return answer


def test_gcn(graphs: Graphs) -> None:
    layer = GcnLayer(1, 1)
    set_all(layer, weight=3.0, bias=-30.0)
    # D = 2, 3, 2, 1.
    root6 = math.sqrt(6)
    summed = [1 / 2 + 2 / root6, 1 / root6 + 2 / 3 + 4 / root6, 2 / root6 + 4 / 2, 8.0]
    below = [0.01 * (3 * value - 30) for value in summed]
    assert of(layer, graphs) == pytest.approx(below, rel=1e-5)
    set_all(layer, weight=3.0, bias=1.0)
    assert of(layer, graphs) == pytest.approx([3 * value + 1 for value in summed], rel=1e-5)


def test_gcn_is_the_same_in_either_order_of_its_products(graphs: Graphs) -> None:
    narrowing = GcnLayer(2, 1)
    set_all(narrowing, weight=[1.0, 0.5], bias=0.0)
    widening = GcnLayer(1, 2)
    set_all(widening, weight=[1.0, 0.5], bias=0.0)
    wide = widening(graphs, graphs.features)
    twice = torch.cat([graphs.features, graphs.features], dim=-1)
    assert narrowing(graphs, twice).flatten().tolist() == pytest.approx(wide.sum(-1).flatten().tolist(), rel=1e-5)


def test_gin(graphs: Graphs) -> None:
    layer = GinLayer(1, 1)
    set_all(layer, epsilon=[0.5], enter_weight=1.0, enter_bias=-4.0, leave_weight=2.0, leave_bias=-1.0)
    # s = 1.5 x + neighbours: 3.5, 8, 8, 12.
    assert of(layer, graphs) == pytest.approx([-0.01, 7.0, 7.0, 15.0])


def test_gat(graphs: Graphs) -> None:
    layer = GatLayer(1, 1)
    set_all(layer, weight_weight=1.0, of_self=-1.0, of_neighbour=0.5, bias=-3.0)

    def weighted(v: float, seen: list[float]) -> float:
        scores = [0.5 * w - v for w in seen]
        weights = [math.exp(score if score > 0 else 0.2 * score) for score in scores]
        mean = sum(a * w for a, w in zip(weights, seen, strict=True)) / sum(weights) - 3
        return mean if mean > 0 else math.exp(mean) - 1

    expected = [weighted(1, [1, 2]), weighted(2, [1, 2, 4]), weighted(4, [2, 4]), weighted(8, [8])]
    assert of(layer, graphs) == pytest.approx(expected, rel=1e-5)


def test_gat_heads_do_not_mix(graphs: Graphs) -> None:
    layer = GatLayer(1, 4)
    single = GatLayer(1, 1)
    set_all(layer, weight_weight=[1, 2, 3, 4], of_self=[1, -1, 0.5, 0], of_neighbour=[0.1, 0.2, -0.3, 0.4])
    heads = layer(graphs, graphs.features)
    set_all(single, weight_weight=3.0, of_self=0.5, of_neighbour=-0.3)
    assert heads[..., 2].flatten().tolist() == pytest.approx(of(single, graphs), rel=1e-5)


def test_mpnn(graphs: Graphs) -> None:
    layer = MpnnLayer(1, 1)
    set_all(
        layer, of_self_weight=1.0, of_self_bias=-3.0, of_neighbour_weight=0.5, state_weight=2.0, message_weight=10.0
    )
    # Messages max(0, v + w/2 - 3): to 0: 0 from 1; to 1: 0 from 0, 1 from 2; to 2: 2 from 1; to 3: none.
    assert of(layer, graphs) == pytest.approx([2, 4 + 10, 8 + 20, 16])


def test_pna(graphs: Graphs) -> None:
    found: dict[str, list[float]] = {"mean": [2, 2.5, 2, 0], "max": [2, 4, 2, 0], "min": [2, 1, 2, 0]}
    least = math.sqrt(1e-4)
    found["deviation"] = [least, math.sqrt(1.5**2 + 1e-4), least, 0]
    strength = [math.log(1 + degree) / math.log(5) for degree in (1, 2, 1)] + [1.0]
    for place, name in enumerate(found):
        for offset, factor in ((1, [1.0] * 4), (5, strength), (9, [1 / t for t in strength])):
            layer = PnaLayer(1, 1)
            weights = [0.0] * 13
            weights[0], weights[offset + place] = 1.0, 1.0
            set_all(layer, linear_weight=weights)
            expected = [x + value * t for x, value, t in zip(X, found[name], factor, strict=True)]
            assert of(layer, graphs) == pytest.approx(expected, rel=1e-4), name


@pytest.mark.parametrize("manner", ["message", "state"])
def test_cell(manner: str) -> None:
    cell = StateCell(manner, 1)
    set_all(cell, cell_weight_ih=[0.1, 0.2, 0.3], cell_weight_hh=[0.4, 0.5, 0.6], cell_bias_hh=[0.0, 0.0, 0.7])
    x, y = 2.0, 5.0
    given, kept = (x, y) if manner == "message" else (y, x)
    r, z = (1 / (1 + math.exp(-value)) for value in (0.1 * given + 0.4 * kept, 0.2 * given + 0.5 * kept))
    n = math.tanh(0.3 * given + r * (0.6 * kept + 0.7))
    after = cell(torch.tensor([[x]]), torch.tensor([[y]]))
    assert after.item() == pytest.approx((1 - z) * n + z * kept, rel=1e-5)


def test_cell_fills_up_narrow_states_with_zeros() -> None:
    torch.manual_seed(0)
    cell = StateCell("message", 3)
    y = torch.rand(2, 5, 3)
    filled = cell(torch.cat([torch.ones(2, 5, 1), torch.zeros(2, 5, 2)], dim=-1), y)
    assert torch.equal(cell(torch.ones(2, 5, 1), y), filled)
