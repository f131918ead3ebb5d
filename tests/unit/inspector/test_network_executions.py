"""The same answers whichever way neighbours are summed, in whichever order and company a graph comes."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from driple.contracts.errors import DripleError, UnknownName
from driple.inspector.model.model_config import GRUS, PRESETS, NetworkConfig
from driple.inspector.network.batching import execution_choice
from driple.inspector.network.batching.dense import dense
from driple.inspector.network.batching.sparse import sparse
from driple.inspector.network.graph_network import Network
from driple.inspector.network.layers.registry import LAYERS, layer
from driple.inspector.network.readouts.registry import READOUTS, readout

needs_dgl = pytest.mark.skipif(importlib.util.find_spec("dgl") is None, reason="DGL is not installed")
SIZES = (4, 9, 1, 14)
PAPER = PRESETS["paper"].network
PLANS = [
    *[pytest.param(NetworkConfig(layer=name, hidden=8, plain=False, dropout=0.0), id=name) for name in LAYERS],
    *[
        pytest.param(NetworkConfig(readout=name, hidden=8, layer="gcn", plain=False, dropout=0.0), id=name)
        for name in READOUTS
    ],
    *[pytest.param(NetworkConfig(gru=name, hidden=8, plain=False, dropout=0.0), id=f"gru-{name}") for name in GRUS],
    pytest.param(PAPER, id="paper"),
]


def batch(seed: int = 0, dtype: torch.dtype = torch.float32) -> tuple[list[Tensor], list[Tensor], Tensor]:
    """Features, edges and facts of graphs of SIZES; among them a node that is alone."""
    generator = torch.Generator().manual_seed(seed)
    features = [torch.rand(n, 3, generator=generator, dtype=dtype) * 2 - 1 for n in SIZES]
    edges = []
    for n in SIZES:
        pairs = torch.combinations(torch.arange(n))
        edges.append(pairs[torch.rand(len(pairs), generator=generator) < 0.4])
    return features, edges, torch.rand(len(SIZES), 2, generator=generator, dtype=dtype)


def network(config: NetworkConfig, dtype: torch.dtype = torch.float32) -> Network:
    torch.manual_seed(1)
    made = Network(config, 3, 2)
    made.to(dtype)
    if config.start == "published":  # so near zero that nothing could be told apart
        for linear in made.mlp:
            linear.reset_parameters()
    return made


def of_nodes(x: Tensor) -> Tensor:
    """From padded rows to those of nodes."""
    return torch.cat([rows[:n] for rows, n in zip(x, SIZES, strict=True)]) if x.dim() == 3 else x


def gradients(module: torch.nn.Module, answer: Tensor, *inputs: Tensor) -> list[Tensor]:
    weights = [*inputs, *module.parameters()]
    return list(torch.autograd.grad((answer * torch.linspace(-1, 1, answer.numel()).view_as(answer)).sum(), weights))


def assert_close(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@needs_dgl
@pytest.mark.parametrize("name", LAYERS)
def test_layers_are_equal_in_both_executions(name: str) -> None:
    features, edges, _ = batch()
    torch.manual_seed(1)
    module = layer(name, 3, 8)
    found = []
    for batcher in (dense, sparse):
        graphs = batcher(features, edges)
        x = graphs.features.clone().requires_grad_()
        y = of_nodes(module(graphs, x))
        of_x, *of_weights = gradients(module, y, x)
        found.append([y, of_nodes(of_x), *of_weights])
    for one, other in zip(*found, strict=True):
        assert_close(one, other)


@needs_dgl
@pytest.mark.parametrize("name", READOUTS)
def test_readouts_are_equal_in_both_executions(name: str) -> None:
    features, edges, _ = batch()
    torch.manual_seed(1)
    module = readout(name, 3, 8, "N")
    found = []
    for batcher in (dense, sparse):
        graphs = batcher(features, edges)
        x = graphs.features.clone().requires_grad_()
        read = module(graphs, x)
        assert read.shape == (len(SIZES), module.outputs)
        of_x, *of_weights = gradients(module, read, x)
        found.append([read, of_nodes(of_x), *of_weights])
    for one, other in zip(*found, strict=True):
        assert_close(one, other)


@needs_dgl
@pytest.mark.parametrize("config", PLANS)
def test_networks_are_equal_in_both_executions(config: NetworkConfig) -> None:
    features, edges, facts = batch()
    module = network(config)
    one, other = (module(batcher(features, edges), facts) for batcher in (dense, sparse))
    assert one.std(0).min() > 1e-6  # they tell graphs apart, or equality would say little
    assert_close(one, other)
    for a, b in zip(gradients(module, one), gradients(module, other), strict=True):
        assert_close(a, b)


@pytest.mark.parametrize("batcher", [dense, pytest.param(sparse, marks=needs_dgl)])
@pytest.mark.parametrize("config", PLANS)
def test_a_batch_answers_as_its_graphs_one_by_one(config: NetworkConfig, batcher: Any) -> None:
    features, edges, facts = batch()
    module = network(config)
    together = module(batcher(features, edges), facts)
    for i in range(len(SIZES)):
        alone = module(batcher(features[i : i + 1], edges[i : i + 1]), facts[i : i + 1])
        assert_close(together[i : i + 1], alone)


@pytest.mark.parametrize("config", PLANS)
def test_what_fills_up_does_not_matter(config: NetworkConfig) -> None:
    features, edges, facts = batch()
    module = network(config)
    graphs = dense(features, edges)
    before = module(graphs, facts)
    assert graphs.features[0, SIZES[0] :].abs().sum() == 0
    graphs.features[~graphs.real.expand_as(graphs.features)] = 100.0
    assert_close(module(graphs, facts), before)


@pytest.mark.parametrize("batcher", [dense, pytest.param(sparse, marks=needs_dgl)])
@pytest.mark.parametrize("config", PLANS)
def test_the_order_of_nodes_does_not_matter(config: NetworkConfig, batcher: Any) -> None:
    features, edges, facts = batch()
    module = network(config)
    generator = torch.Generator().manual_seed(5)
    moved_features, moved_edges = [], []
    for rows, pairs in zip(features, edges, strict=True):
        order = torch.randperm(len(rows), generator=generator)
        moved_features.append(rows[order])
        moved_edges.append(order.argsort()[pairs].flip(1))
    assert_close(module(batcher(moved_features, moved_edges), facts), module(batcher(features, edges), facts))


@pytest.mark.parametrize("batcher", [dense, pytest.param(sparse, marks=needs_dgl)])
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_are_those_of_the_answers(name: str, batcher: Any) -> None:
    features, edges, facts = batch(dtype=torch.float64)
    module = network(NetworkConfig(layer=name, hidden=8, depth="2", plain=False, dropout=0.0), torch.float64)
    graphs = batcher(features, edges)
    answer = module(graphs, facts)
    direction = [torch.ones_like(weight) for weight in module.parameters()]
    slope = sum((a * b).sum().item() for a, b in zip(gradients(module, answer), direction, strict=True))
    assert slope != 0
    found = []
    for step in (1e-6, -1e-6):
        with torch.no_grad():
            for weight, way in zip(module.parameters(), direction, strict=True):
                weight += step * way
            moved = module(graphs, facts)
            found.append((moved * torch.linspace(-1, 1, moved.numel()).view_as(moved)).sum().item())
            for weight, way in zip(module.parameters(), direction, strict=True):
                weight -= step * way
    assert (found[0] - found[1]) / 2e-6 == pytest.approx(slope, rel=1e-4)


@pytest.mark.parametrize("batcher", [dense, pytest.param(sparse, marks=needs_dgl)])
def test_graphs_move_between_devices_whole(batcher: Any) -> None:
    features, edges, _ = batch()
    graphs = batcher(features, edges)
    moved = graphs.to("cpu")
    assert moved.counts == SIZES
    assert moved.sizes.tolist() == list(SIZES)
    assert torch.equal(moved.degree(), graphs.degree())


@pytest.mark.parametrize("batcher", [dense, pytest.param(sparse, marks=needs_dgl)])
def test_a_graph_without_edges_is_a_graph(batcher: Any) -> None:
    features = [torch.ones(3, 2)]
    graphs = batcher(features, [torch.zeros(0, 2, dtype=torch.int64)])
    for name in LAYERS:
        assert layer(name, 2, 4)(graphs, graphs.features).isfinite().all()
    assert graphs.max(graphs.features).abs().sum() == 0
    assert graphs.sum(graphs.features).abs().sum() == 0


def test_small_and_even_graphs_are_dense_and_others_not() -> None:
    assert execution_choice.suits_dense([100] * 32)
    assert execution_choice.suits_dense([20, 5, 2])
    assert execution_choice.suits_dense([])
    assert not execution_choice.suits_dense([1000] * 32)
    assert not execution_choice.suits_dense([100, 4, 3, 5])


def test_the_choice_can_be_forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(execution_choice, "has_dgl", lambda: True)
    assert execution_choice.choose("auto", [1000]) is sparse
    assert execution_choice.choose("auto", [10]) is dense
    assert execution_choice.choose("dense", [1000]) is dense
    assert execution_choice.choose("dgl", [10]) is sparse
    with pytest.raises(UnknownName, match="execution"):
        execution_choice.choose("sparse", [10])


def test_without_dgl_auto_is_dense_and_dgl_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> object:
        raise ImportError(name)

    monkeypatch.setattr(execution_choice, "has_dgl", lambda: False)
    assert execution_choice.choose("auto", [1000]) is dense
    monkeypatch.setattr("importlib.import_module", missing)
    features, edges, _ = batch()
    with pytest.raises(DripleError, match="--set machine.execution=dense"):
        sparse(features, edges)


@needs_dgl
def test_dgl_prints_nothing_and_leaves_nothing_in_the_home(tmp_path: Path) -> None:
    script = (
        "import torch; from driple.inspector.network.batching.sparse import sparse\n"
        "sparse([torch.ones(2, 1)], [torch.tensor([[0, 1]])]).sum(torch.ones(2, 1))"
    )
    environment = {name: value for name, value in os.environ.items() if name != "DGLBACKEND"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script],
        env={**environment, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []
