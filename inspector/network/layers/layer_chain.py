"""Layer after layer, each followed by the cell: where nearly all the time of the published recipe goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from driple.inspector.network.batching.graph_batch import Graphs

Layer = Callable[[Graphs, Tensor], Tensor]
Cell = Callable[[Tensor, Tensor], Tensor]
FastChain = Callable[[Graphs, Tensor, object, object, object, Sequence[int]], "Tensor | None"]
"""Graphs, states, first layer, other layer, cell and steps to the last states; None where it does not apply."""
FAST_CHAINS: list[FastChain] = []
"""Faster ways through layers with shared weights, tried in order. See benchmarks/published_recipe_kernels."""


def chain(
    graphs: Graphs, x: Tensor, layer_at: Callable[[int], Layer], cell: Cell | None, steps: Sequence[int]
) -> list[Tensor]:
    """States after every step, the last one last.

    Args:
        graphs: the batch.
        x: states before.
        layer_at: the layer of a step, counted from 0.
        cell: from state and layer's output to the next state; without it the output is the next state.
        steps: how many each graph takes; one that has taken its own keeps its state.
    """
    states = []
    shortest = min(steps)
    for step in range(max(steps)):
        y = layer_at(step)(graphs, x)
        after = y if cell is None else cell(x, y)
        if step >= shortest:
            going_on = torch.tensor([step < own for own in steps], device=x.device)
            after = graphs.keep(going_on, after, x)
        x = after
        states.append(x)
    return states
