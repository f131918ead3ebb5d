"""The published checkpoint against a plain restatement of its maths, one graph and one node at a time."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from driple.contracts.errors import BadInput
from driple.contracts.metrics import PUBLISHED_INDEX
from driple.inspector.model.model_config import PRESETS
from driple.inspector.model.published_checkpoint import read_weights, to_network_state
from driple.inspector.network.batching.dense import DenseGraphs
from driple.inspector.network.graph_network import Network

H = 64
SHAPES: dict[str, tuple[int, ...]] = {
    "conv_layers.0.W": (3, H),
    "conv_layers.0.b": (H,),
    "conv_layers.1.W": (H, H),
    "conv_layers.1.b": (H,),
    "gru.gru.weight_ih_l0": (3 * H, H),
    "gru.gru.weight_hh_l0": (3 * H, H),
    "gru.gru.bias_ih_l0": (3 * H,),
    "gru.gru.bias_hh_l0": (3 * H,),
    "graph_read_out.set2set.lstm.weight_ih_l0": (4 * H, 2 * H),
    "graph_read_out.set2set.lstm.weight_hh_l0": (4 * H, H),
    "graph_read_out.set2set.lstm.bias_ih_l0": (4 * H,),
    "graph_read_out.set2set.lstm.bias_hh_l0": (4 * H,),
    "graph_read_out.mlp.fully_connected.0.linear.weight": (H, 2 * H),
    "graph_read_out.mlp.fully_connected.0.linear.bias": (H,),
    "graph_read_out.mlp.fully_connected.1.linear.weight": (H, H),
    "graph_read_out.mlp.fully_connected.1.linear.bias": (H,),
    "graph_read_out.mlp.fully_connected.2.linear.weight": (12, H),
    "graph_read_out.mlp.fully_connected.2.linear.bias": (12,),
}
REAL = os.environ.get("DRIPLE_PUBLISHED_CHECKPOINT", "")


def drawn() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(2)
    return {name: (torch.rand(*shape, generator=generator) - 0.5) * 0.4 for name, shape in SHAPES.items()}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("published") / "pre-train.pkl"
    torch.save(drawn(), path)
    return path


def inputs(nodes: int, batch: int = 2) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(nodes)
    features = torch.rand(batch, nodes, 3, generator=generator) * torch.tensor([5.0, 3.0, 1.0])
    upper = (torch.rand(batch, nodes, nodes, generator=generator) < 0.4).float().triu(1)
    return features, upper + upper.transpose(1, 2)


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def leaky(x: Any) -> Any:
    return np.where(x > 0, x, 0.01 * x)


def restated(state: dict[str, Tensor], features: Tensor, adjacency: Tensor) -> list[list[float]]:
    w = {name: weight.double().numpy() for name, weight in state.items()}
    return [_one(w, x.double().numpy(), a.double().numpy()) for x, a in zip(features, adjacency, strict=True)]


def _one(w: dict[str, Any], features: Any, adjacency: Any) -> list[float]:
    nodes = len(features)
    x = features
    for k in range(max(1, nodes // 2)):
        conv = f"conv_layers.{min(k, 1)}"
        after = []
        for v in range(nodes):
            message = np.zeros(H)
            for u in range(nodes):
                if u == v or adjacency[v, u]:
                    message += x[u] @ w[f"{conv}.W"] / np.sqrt((1 + adjacency[v].sum()) * (1 + adjacency[u].sum()))
            y = leaky(message + w[f"{conv}.b"])
            before = np.concatenate([x[v], np.zeros(H - len(x[v]))])
            given = w["gru.gru.weight_ih_l0"] @ before + w["gru.gru.bias_ih_l0"]
            kept = w["gru.gru.weight_hh_l0"] @ y + w["gru.gru.bias_hh_l0"]
            r = sigmoid(given[:H] + kept[:H])
            z = sigmoid(given[H : 2 * H] + kept[H : 2 * H])
            n = np.tanh(given[2 * H :] + r * kept[2 * H :])
            after.append((1 - z) * n + z * y)
        x = np.array(after)
    lstm = "graph_read_out.set2set.lstm"
    query = memory = read = np.zeros(H)
    for _ in range(nodes):
        gates = w[f"{lstm}.weight_ih_l0"] @ np.concatenate([query, read]) + w[f"{lstm}.bias_ih_l0"]
        gates = gates + w[f"{lstm}.weight_hh_l0"] @ query + w[f"{lstm}.bias_hh_l0"]
        enter, forget, candidate, leave = np.split(gates, 4)
        memory = sigmoid(forget) * memory + sigmoid(enter) * np.tanh(candidate)
        query = sigmoid(leave) * np.tanh(memory)
        weights = np.exp(x @ query - (x @ query).max())
        read = (weights / weights.sum()) @ x
    out = np.concatenate([query, read])
    for i in range(3):
        mlp = f"graph_read_out.mlp.fully_connected.{i}.linear"
        out = w[f"{mlp}.weight"] @ out + w[f"{mlp}.bias"]
        out = np.maximum(out, 0) if i < 2 else leaky(out)
    return [float(value) for value in out]


def answers(path: Path, features: Tensor, adjacency: Tensor) -> Tensor:
    """[B, N, 3] and [B, N, N] to [B, 12], features and answers in the authors' order."""
    network = Network(PRESETS["paper"].network, 3, 0)
    network.load_state_dict(read_weights(path), strict=True)
    return network(DenseGraphs(features, adjacency, [features.shape[1]] * len(features)), None)


@pytest.mark.parametrize("nodes", [2, 3, 7, 20])
def test_answers_are_those_of_the_maths(checkpoint: Path, nodes: int) -> None:
    features, adjacency = inputs(nodes)
    with torch.no_grad():
        found = answers(checkpoint, features, adjacency).double().numpy()
    expected = np.array(restated(drawn(), features, adjacency))
    assert found.shape == (2, 12)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.skipif(not Path(REAL).is_file(), reason="DRIPLE_PUBLISHED_CHECKPOINT does not name the published file")
@pytest.mark.parametrize("nodes", [2, 3, 7, 20])
def test_answers_of_the_real_one_are_those_of_the_maths(nodes: int) -> None:
    features, adjacency = inputs(nodes)
    state = torch.load(REAL, map_location="cpu", weights_only=True)
    with torch.no_grad():
        found = answers(Path(REAL), features, adjacency).double().numpy()
    np.testing.assert_allclose(found, np.array(restated(state, features, adjacency)), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("nodes", [2, 7, 20])
def test_as_a_start_it_takes_features_and_gives_targets_in_our_order(checkpoint: Path, nodes: int) -> None:
    features, adjacency = inputs(nodes)
    network = Network(PRESETS["paper"].network, 3, 0)
    network.load_state_dict(to_network_state(checkpoint), strict=True)
    size, count, frequency = features.unbind(-1)
    ours = torch.stack([frequency, size, count], dim=-1)
    found = network(DenseGraphs(ours, adjacency, [nodes] * 2), None)
    published = answers(checkpoint, features, adjacency)
    torch.testing.assert_close(found, published[:, list(PUBLISHED_INDEX)], rtol=1e-5, atol=1e-6)


def test_loading_draws_no_more_than_a_network_does(checkpoint: Path) -> None:
    torch.manual_seed(0)
    to_network_state(checkpoint)
    after = torch.rand(1)
    torch.manual_seed(0)
    assert torch.equal(after, torch.rand(1))


def refused(path: Path, value: object) -> str:
    torch.save(value, path)
    with pytest.raises(BadInput) as caught:
        read_weights(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    return message


class Harm:
    def __init__(self, witness: Path) -> None:
        self.witness = witness

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.witness),)


def test_a_file_that_wants_to_run_something_is_refused(tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    assert "asks to run 'posix.mkdir'" in refused(tmp_path / "a.pkl", {**drawn(), "more": Harm(witness)})
    plain = tmp_path / "b.pkl"
    plain.write_bytes(pickle.dumps({"more": Harm(witness)}, protocol=2))
    with pytest.raises(BadInput, match="b.pkl: "):
        read_weights(plain)
    assert not witness.exists()


def test_other_checkpoints_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.pkl"
    weights = drawn()
    narrow = {**weights, "conv_layers.1.W": torch.zeros(32, 32)}
    assert "'conv_layers.1.W' is (32, 32), expected (64, 64)" in refused(path, narrow)
    less = {name: weight for name, weight in weights.items() if name != "conv_layers.1.b"}
    assert "'conv_layers.1.b' is missing" in refused(path, less)
    assert "it has 'layer.W' instead" in refused(path, {**less, "layer.W": torch.zeros(1)})
    assert "'more' is not one of its 18" in refused(path, {**weights, "more": torch.zeros(1)})
    assert "finite numbers" in refused(path, {**weights, "conv_layers.0.b": torch.full((H,), torch.nan)})
    assert "finite numbers" in refused(path, {**weights, "conv_layers.0.b": torch.zeros(H, dtype=torch.int64)})
    for odd in (torch.zeros(H).to_sparse(), torch.zeros(H, device="meta")):
        assert "not a plain table of numbers" in refused(path, {**weights, "conv_layers.0.b": odd})
    assert "expected weights by name, got list" in refused(path, [1, 2])
    assert "expected weights by name, got dict" in refused(path, {"epoch": 3})


def test_files_that_are_none_are_refused(tmp_path: Path, checkpoint: Path) -> None:
    cut = tmp_path / "cut.pkl"
    cut.write_bytes(checkpoint.read_bytes()[:5000])
    empty = tmp_path / "empty.pkl"
    empty.touch()
    text = tmp_path / "text.pkl"
    text.write_text("hello\n")
    for path in (cut, empty, text):
        with pytest.raises(BadInput, match="not a file that torch.save wrote, or one cut short"):
            read_weights(path)
    with pytest.raises(BadInput, match="no such file"):
        to_network_state(tmp_path / "nothing.pkl")
    with pytest.raises(BadInput, match="a folder"):
        read_weights(tmp_path)
