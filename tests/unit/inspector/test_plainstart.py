"""The plain model that a network starts from."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray

from driple.contracts.metrics import COLUMNS
from driple.inspector.config import NetworkConfig
from driple.inspector.executions.dense import dense
from driple.inspector.network import Network
from driple.inspector.plainstart import STRENGTHS, Rows, _solve, folds_of, plain_start, ridge

DRAWN = np.random.default_rng(3)
FACTS = DRAWN.normal(size=(40, 5))
TRUE = DRAWN.normal(size=(5, 2))
TARGETS = FACTS @ TRUE + [1.0, -2.0] + DRAWN.normal(scale=0.01, size=(40, 2))
EVERYWHERE: NDArray[np.bool_] = np.ones((40, 2), dtype=bool)
TRAIN = Rows(FACTS, TARGETS, EVERYWHERE)


def test_solve_is_the_formula() -> None:
    x, y = FACTS - FACTS.mean(axis=0), TARGETS[:, 0]
    wanted = np.linalg.solve(x.T @ x + 2.5 * np.eye(5), x.T @ (y - y.mean()))
    weights, biases = _solve(FACTS, y, (2.5,))
    assert np.allclose(weights[0], wanted)
    assert np.isclose(biases[0], y.mean() - FACTS.mean(axis=0) @ wanted)


def test_ridge_finds_a_line_that_is_there() -> None:
    weights, biases = ridge(TRAIN, folds_of([None] * 40, 40))
    assert np.allclose(weights, TRUE, atol=0.02)
    assert np.allclose(biases, [1.0, -2.0], atol=0.02)


def test_rows_without_a_target_are_not_looked_at() -> None:
    spoiled, mask = TARGETS.copy(), EVERYWHERE.copy()
    spoiled[:10, 0], mask[:10, 0] = 1e9, False
    mask[:, 1] = False
    weights, biases = ridge(Rows(FACTS, spoiled, mask), folds_of([None] * 40, 40))
    assert np.allclose(weights[:, 0], TRUE[:, 0], atol=0.02)
    assert not weights[:, 1].any() and biases[1] == 0.0


def test_what_does_not_carry_over_to_other_families_is_damped() -> None:
    # Within each family the fact says the target, and in every family with another sign.
    family: NDArray[np.int64] = np.repeat(np.arange(4), 10)
    fact = np.tile(np.linspace(-1, 1, 10), 4)
    target = fact * np.where(family % 2, 1.0, -1.0)
    shape = (40, 1)
    rows = Rows(fact.reshape(shape), target.reshape(shape), np.ones(shape, bool))
    by_family, _ = ridge(rows, folds_of([f"f{n}" for n in family], 40))
    assert abs(by_family[0, 0]) < 0.01


def test_validation_rows_are_held_back_too() -> None:
    other = Rows(FACTS, np.repeat(TARGETS.mean(axis=0)[None], 40, axis=0), EVERYWHERE)  # there, the facts say nothing
    folds: NDArray[np.int64] = np.zeros(40, dtype=np.int64)  # of the training rows nothing can be held back
    strict, _ = ridge(TRAIN, folds, other)
    free, _ = ridge(TRAIN, folds, TRAIN)
    assert np.abs(strict).max() < 0.05 * np.abs(free).max()


def test_families_stay_together_and_without_families_rows_take_turns() -> None:
    assert folds_of(["a", "b", "a", "c"], 4).tolist() == [0, 1, 0, 2]
    assert folds_of([None] * 12, 12).tolist() == [*range(10), 0, 1]
    assert folds_of(["a"] * 3, 3).tolist() == [0, 1, 2]


def test_with_one_row_the_strongest_damping_and_the_row_itself() -> None:
    weights, biases = ridge(Rows(FACTS[:1], TARGETS[:1], EVERYWHERE[:1]), folds_of([None], 1))
    assert len(STRENGTHS) > 1
    assert np.allclose(FACTS[:1] @ weights + biases, TARGETS[:1])


def _network_and_graphs() -> tuple[Network, object]:
    torch.manual_seed(0)
    network = Network(NetworkConfig(hidden=4, depth="1"), 3, 5, len(COLUMNS))
    features = [torch.randn(4, 3) for _ in range(40)]
    return network.eval(), dense(features, [torch.tensor([[0, 1], [1, 2]])] * 40)


def test_a_fresh_network_starts_as_the_ridge() -> None:
    network, graphs = _network_and_graphs()
    facts = torch.as_tensor(FACTS, dtype=torch.float32)
    targets = torch.zeros(40, len(COLUMNS))
    targets[:, :2] = torch.as_tensor(TARGETS)
    mask = torch.zeros_like(targets)
    mask[:, :2] = 1
    rows = Rows.of(facts, targets, mask)
    plain_start(network, rows, folds_of([None] * 40, 40), rows)
    outputs = network(graphs, facts).detach()
    assert torch.allclose(outputs[:, :2], targets[:, :2], atol=0.1)
    assert not outputs[:, 2:].any()


def test_a_network_that_has_learned_keeps_it_and_is_corrected() -> None:
    network, graphs = _network_and_graphs()
    facts = torch.as_tensor(FACTS, dtype=torch.float32)
    before = network(graphs, facts).detach()
    last = network.mlp[-1].weight.detach().clone()
    targets = before.clone()
    targets[:, 0] += facts[:, 1] + 3
    rows = Rows.of(facts, targets - before, torch.ones_like(targets))
    plain_start(network, rows, folds_of([None] * 40, 40), rows, fresh=False)
    assert torch.equal(network.mlp[-1].weight, last)
    assert torch.allclose(network(graphs, facts).detach(), targets, atol=0.01)
