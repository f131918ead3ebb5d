"""The attention of Set2Set over the nodes of a padded batch, and its gradients."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from driple.inspector.network.batching.dense import DenseGraphs
from driple.inspector.network.readouts.set2set import attended

STEPS = 4


@pytest.fixture
def graphs() -> DenseGraphs:
    """Two graphs, of which the second fills up its last two rows."""
    return DenseGraphs(torch.zeros(2, 5, 3), torch.zeros(2, 5, 5), [5, 3])


def read(look: Callable[[Tensor], Tensor], query: Tensor) -> Tensor:
    """Each query comes of the answer before."""
    for _ in range(STEPS):
        query = (look(query) + query).sin()
    return query.square().sum()


def plainly(graphs: DenseGraphs, x: Tensor) -> Callable[[Tensor], Tensor]:
    def look(query: Tensor) -> Tensor:
        scores = (x * query[:, None, :]).sum(-1, keepdim=True).masked_fill(~graphs.real, float("-inf"))
        return (scores.softmax(1) * x).sum(1)

    return look


@pytest.fixture
def given() -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(0)
    x, query = (torch.randn(*size, dtype=torch.float64, generator=source) for size in ((2, 5, 6), (2, 6)))
    return x.requires_grad_(), query.requires_grad_()


def test_values_and_gradients_are_those_of_the_formula(graphs: DenseGraphs, given: tuple[Tensor, Tensor]) -> None:
    ours, plain = (
        read(lambda query: attended(graphs, given[0], query), given[1]),
        read(plainly(graphs, given[0]), given[1]),
    )
    torch.testing.assert_close(ours, plain)
    torch.testing.assert_close(torch.autograd.grad(ours, given), torch.autograd.grad(plain, given))
