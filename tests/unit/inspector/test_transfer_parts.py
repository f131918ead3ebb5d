"""What is frozen stays, what is tuned moves, and what is cached is exactly what would have been computed."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from driple.contracts.errors import BadInput, UnknownName
from driple.inspector.model.model_config import PRESETS, NetworkConfig
from driple.inspector.network.batching.dense import DenseGraphs, dense
from driple.inspector.network.graph_network import Network
from driple.inspector.training.train_config import TUNE_PARTS
from driple.inspector.training.transfer import Transferred, prepare_transfer

PAPER = dataclasses.replace(PRESETS["paper"].network, hidden=8)
OURS = NetworkConfig(hidden=8, depth="4", plain=False, dropout=0.0)
CONFIGS = [
    pytest.param(PAPER, id="paper"),
    pytest.param(OURS, id="driple"),
    pytest.param(dataclasses.replace(OURS, shared=True, gru="off", jump=False, depth="sqrtN"), id="shared-off"),
    pytest.param(dataclasses.replace(OURS, depth="1"), id="one-layer"),
]
WORKLOAD_FEATURES = torch.tensor([[0.5, 1.0], [-1.0, 0.0], [0.25, 2.0]])


def graphs() -> DenseGraphs:
    generator = torch.Generator().manual_seed(0)
    sizes = (3, 8, 13)
    features = [torch.rand(n, 3, generator=generator) for n in sizes]
    edges = [torch.tensor([[i, i + 1] for i in range(n - 1)]) for n in sizes]
    return dense(features, edges)


def trained(config: NetworkConfig) -> Network:
    torch.manual_seed(7)
    network = Network(config, 3, 2)
    for linear in network.mlp:
        linear.reset_parameters()
    return network


def tune_a_little(transferred: Transferred, batch: DenseGraphs, cached: Tensor) -> None:
    optimiser = torch.optim.SGD(transferred.tuned(), lr=0.5)
    for _ in range(3):
        optimiser.zero_grad()
        transferred(batch, cached, WORKLOAD_FEATURES).square().mean().backward()
        optimiser.step()


def parts(network: Network) -> set[str]:
    """First words of the names of weights that may change."""
    return {name.split(".")[0] for name, weight in network.named_parameters() if weight.requires_grad}


@pytest.mark.parametrize("tune", TUNE_PARTS)
@pytest.mark.parametrize("config", CONFIGS)
def test_before_tuning_answers_are_those_of_the_start(config: NetworkConfig, tune: str) -> None:
    start, batch = trained(config), graphs()
    transferred = prepare_transfer(start, tune)
    assert torch.equal(transferred(batch, transferred.cache(batch), WORKLOAD_FEATURES), start(batch, WORKLOAD_FEATURES))


@pytest.mark.parametrize("tune", TUNE_PARTS)
@pytest.mark.parametrize("config", CONFIGS)
def test_frozen_weights_stay_and_all_others_move(config: NetworkConfig, tune: str) -> None:
    start, batch = trained(config), graphs()
    original = {name: weight.clone() for name, weight in start.state_dict().items()}
    transferred = prepare_transfer(start, tune)
    before = {name: weight.clone() for name, weight in transferred.network.state_dict().items()}
    frozen = {name for name, weight in transferred.network.named_parameters() if not weight.requires_grad}
    cached = transferred.cache(batch)
    tune_a_little(transferred, batch, cached)
    after = transferred.network.state_dict()
    still = {name for name in after if torch.equal(after[name], before[name])}
    assert still == frozen
    assert bool(frozen) == (tune != "all")
    assert all(torch.equal(start.state_dict()[name], weight) for name, weight in original.items())
    # After tuning too, what was cached before it is what is computed now.
    assert torch.equal(transferred.cache(batch), cached) or tune == "all"
    assert torch.equal(transferred(batch, cached, WORKLOAD_FEATURES), transferred.network(batch, WORKLOAD_FEATURES))


def test_what_each_choice_tunes() -> None:
    tuned = {tune: parts(prepare_transfer(trained(PAPER), tune).network) for tune in TUNE_PARTS}
    assert tuned == {
        "half": {"late_layer", "late_cell", "readout", "mlp"},
        "mlp": {"mlp"},
        "gru": {"layers", "cell", "mlp"},
        "all": {"layers", "cell", "readout", "mlp"},
    }
    ours = {tune: parts(prepare_transfer(trained(OURS), tune).network) for tune in TUNE_PARTS}
    assert ours == {
        "half": {"layers", "late_cell", "readout", "mlp"},
        "mlp": {"mlp"},
        "gru": {"layers", "cell", "mlp"},
        "all": {"project", "layers", "cell", "readout", "mlp"},
    }


@pytest.mark.parametrize(("ratio", "first"), [(0.25, 1), (0.3, 2), (0.5, 2), (0.75, 3), (0.9, 4)])
def test_the_ratio_says_which_layers_are_frozen(ratio: float, first: int) -> None:
    network = prepare_transfer(trained(OURS), "half", ratio).network
    frozen = [not any(weight.requires_grad for weight in layer.parameters()) for layer in network.layers]
    assert frozen == [k < first for k in range(4)]


def test_however_small_the_share_the_layer_that_takes_features_is_in_it() -> None:
    transferred = prepare_transfer(trained(PAPER), "half", 1e-12)
    batch = graphs()
    assert transferred(batch, transferred.cache(batch)).shape == (3, 12)


def test_the_split_follows_each_graph_of_a_shared_network() -> None:
    network = prepare_transfer(trained(PAPER), "half").network
    assert network.cell is not None and network.late_cell is not None and network.late_layer is not None
    batch = graphs()
    with torch.no_grad():
        for weight in network.late_layer.parameters():
            weight.zero_()
    x = batch.features
    for k in range(3):  # 13 nodes: 6 layers, 3 of them frozen
        x = network.cell(x, network.layers[min(k, 1)](batch, x))
    for _ in range(3):
        x = network.late_cell(x, network.late_layer(batch, x))
    torch.testing.assert_close(network.encode(batch)[2], x[2])


@pytest.mark.parametrize("config", CONFIGS)
def test_a_split_network_loads_again_strictly_and_transfers_again(config: NetworkConfig) -> None:
    transferred = prepare_transfer(trained(config), "half", 0.4)
    batch = graphs()
    tune_a_little(transferred, batch, transferred.cache(batch))
    network = transferred.network
    again = Network(config, 3, 2, split=network.split)
    again.load_state_dict(network.state_dict(), strict=True)
    assert torch.equal(again(batch, WORKLOAD_FEATURES), network(batch, WORKLOAD_FEATURES))
    for tune in TUNE_PARTS:
        third = prepare_transfer(again, tune, 0.4)
        assert torch.equal(third(batch, third.cache(batch), WORKLOAD_FEATURES), network(batch, WORKLOAD_FEATURES))
    with pytest.raises(BadInput, match="split at 0.4 already"):
        prepare_transfer(again, "half", 0.5)


def test_what_is_cached_holds_no_gradients() -> None:
    for tune in TUNE_PARTS:
        assert not prepare_transfer(trained(OURS), tune).cache(graphs()).requires_grad


@pytest.mark.parametrize("ratio", [0.0, 1.0, -0.5, 2.0, float("nan")])
def test_a_ratio_is_a_share(ratio: float) -> None:
    with pytest.raises(BadInput, match="transfer ratio"):
        prepare_transfer(trained(OURS), "half", ratio)


def test_an_unknown_part_is_refused() -> None:
    with pytest.raises(UnknownName, match="part to tune"):
        prepare_transfer(trained(OURS), "third")
