"""How a network is put together: depths, jumps, facts, first weights, stages, the split."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from driple.contracts.errors import BadInput
from driple.inspector.model.model_config import GRUS, PRESETS, NetworkConfig
from driple.inspector.network.batching.dense import DenseGraphs, dense
from driple.inspector.network.graph_network import Network

PAPER = PRESETS["paper"].network
OURS = NetworkConfig(hidden=8, plain=False, dropout=0.0)


def rings(*sizes: int) -> DenseGraphs:
    generator = torch.Generator().manual_seed(0)
    features = [torch.rand(n, 3, generator=generator) for n in sizes]
    edges = [torch.tensor([[i, i + 1] for i in range(n - 1)]).reshape(-1, 2) for n in sizes]
    return dense(features, edges)


def weights_of(network: Network) -> int:
    return sum(weight.numel() for weight in network.parameters())


def test_the_paper_preset_has_the_published_weights_and_no_others() -> None:
    network = Network(PAPER, 3, 0)
    shapes = {name: tuple(weight.shape) for name, weight in network.state_dict().items()}
    assert shapes["layers.0.weight"] == (3, 64)
    assert shapes["layers.1.weight"] == (64, 64)
    assert shapes["cell.cell.weight_ih"] == (192, 64)
    assert shapes["readout.lstm.weight_ih"] == (256, 128)
    assert [shapes[f"mlp.{i}.weight"] for i in range(3)] == [(64, 128), (64, 64), (12, 64)]
    assert weights_of(network) == 3 * 64 + 64 + 64 * 64 + 64 + 24960 + 49664 + 13196


def test_a_published_start_is_near_zero_and_a_usual_one_not() -> None:
    torch.manual_seed(0)
    published = Network(PAPER, 3, 0)
    assert published.mlp[0].weight.abs().max() <= (6 / (128 + 64)) ** 0.5 / 128
    assert all(not linear.bias.any() for linear in published.mlp)
    usual = Network(dataclasses.replace(PAPER, start="usual"), 3, 0)
    assert usual.mlp[0].weight.abs().max() > 0.05


@pytest.mark.parametrize("gru", GRUS)
def test_jumps_show_the_readout_every_state(gru: str) -> None:
    torch.manual_seed(0)
    network = Network(dataclasses.replace(OURS, gru=gru, depth="2"), 3, 0)
    graphs = rings(5, 5)
    state = network.encode(graphs)
    assert state.shape == (2, 5, 3 * 8)
    assert network.project is not None
    assert torch.equal(state[..., :8], network.project(graphs.features))
    shallow = network.encode(graphs, stop=0.5)
    assert torch.equal(state[..., :16], shallow)


def test_depth_follows_each_graph() -> None:
    torch.manual_seed(0)
    config = dataclasses.replace(PAPER, depth="N", hidden=8)
    network = Network(config, 3, 0)
    assert network.cell is not None
    graphs = rings(2, 6)
    x = graphs.features
    states = []
    for k in range(6):
        x = network.cell(x, network.layers[min(k, 1)](graphs, x))
        states.append(x)
    found = network.encode(graphs)
    assert network.layers_of(6) == 6
    torch.testing.assert_close(found[0], states[1][0])
    torch.testing.assert_close(found[1], states[5][1])


@pytest.mark.parametrize("split", [None, 0.3, 0.5, 0.9])
@pytest.mark.parametrize("config", [PAPER, OURS, dataclasses.replace(OURS, gru="off", shared=True, jump=False)])
def test_stages_give_exactly_what_one_call_gives(config: NetworkConfig, split: float | None) -> None:
    torch.manual_seed(0)
    network = Network(config, 3, 2, split=split)
    graphs, facts = rings(2, 3, 7, 11), torch.rand(4, 2)
    whole = network(graphs, facts)
    for share in (0.0, 0.3, 0.5, 1.0):
        state = network.encode(graphs, network.encode(graphs, stop=share), start=share)
        assert torch.equal(network.head(graphs, state, facts), whole)


def test_no_weight_is_without_use() -> None:
    for gru in GRUS:
        for layer in ("gcn", "pna"):
            for shared in (False, True):
                for depth in ("1", "4"):
                    for split in (None, 0.5):
                        config = NetworkConfig(
                            hidden=4,
                            gru=gru,
                            layer=layer,
                            shared=shared,
                            depth=depth,
                            jump=False,
                            plain=False,
                            dropout=0.0,
                        )
                        network = Network(config, 3, 2, split=split)
                        network(rings(5, 6), torch.rand(2, 2)).sum().backward()
                        unused = [name for name, weight in network.named_parameters() if weight.grad is None]
                        assert not unused, (config, split)


def test_features_wider_than_a_state_are_projected() -> None:
    network = Network(dataclasses.replace(PAPER, hidden=2), 3, 0)
    assert network.project is not None
    assert network(rings(4), None).shape == (1, 12)


def test_a_network_begins_as_the_plain_model_it_adds_to() -> None:
    graphs = rings(4, 4)
    facts = torch.randn(2, 14)
    network = Network(dataclasses.replace(OURS, plain=True), 3, 14)
    assert torch.equal(network(graphs, facts), facts[:, 2:])
    network.mlp[-1].reset_parameters()
    assert not torch.allclose(network(graphs, facts), facts[:, 2:])
    with pytest.raises(BadInput, match="only 2 features"):
        Network(dataclasses.replace(OURS, plain=True), 3, 2)


def test_facts_reach_the_answer() -> None:
    graphs = rings(4, 4)
    facts = torch.tensor([[0.0, 0.0], [1.0, -1.0]])
    network = Network(OURS, 3, 2)
    assert not torch.allclose(network(graphs, facts)[1], network(graphs, facts * 0)[1])
    blind = Network(dataclasses.replace(OURS, facts=False, plain=False), 3, 2)
    assert torch.equal(blind(graphs, facts), blind(graphs, None))


def test_dropout_is_for_training() -> None:
    torch.manual_seed(0)
    network = Network(dataclasses.replace(OURS, dropout=0.5), 3, 0)
    graphs = rings(6)
    network.eval()
    assert torch.equal(network(graphs, None), network(graphs, None))
    network.train()
    assert not torch.equal(network(graphs, None), network(graphs, None))


def test_the_seed_decides() -> None:
    def drawn() -> list[Tensor]:
        torch.manual_seed(4)
        return list(Network(OURS, 3, 2).state_dict().values())

    assert all(torch.equal(one, other) for one, other in zip(drawn(), drawn(), strict=True))


@pytest.mark.parametrize("split", [0.0, 1.0, -1.0, float("nan")])
def test_a_split_is_a_share(split: float) -> None:
    with pytest.raises(BadInput, match="split: expected a share"):
        Network(PAPER, 3, 0, split=split)


def test_a_depth_that_cannot_be_is_refused_when_the_network_is_made() -> None:
    with pytest.raises(BadInput, match="depth: unknown 'deep'"):
        Network(NetworkConfig(depth="deep", shared=True, jump=False, plain=False), 3, 0)
