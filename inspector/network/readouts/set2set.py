"""Set2Set (Vinyals, Bengio and Kudlur, 2016): a query goes over the nodes several times.

    q = LSTM(q*),   a = softmax over nodes of x . q,   r = sum of a x,   q* = [q, r];   all zero at first

The last q* is the readout. The published recipe takes N steps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from driple.inspector.network.batching.graph_batch import Graphs
from driple.inspector.network.depth import depth

FastSet2Set = Callable[[Graphs, Tensor, nn.LSTMCell, Sequence[int]], "Tensor | None"]
FAST_SET2SETS: list[FastSet2Set] = []
"""Faster ways, tried in order; None where one does not apply. See benchmarks/published_recipe_kernels."""


class Set2SetReadout(nn.Module):  # type: ignore[misc]
    """x [..., inputs] to [B, 2 inputs]."""

    def __init__(self, inputs: int, steps: str) -> None:
        """Take the number of steps as depth.py has it."""
        super().__init__()
        depth(steps, 1)
        self.steps = steps
        self.lstm = nn.LSTMCell(2 * inputs, inputs)
        self.outputs = 2 * inputs

    def forward(self, graphs: Graphs, x: Tensor) -> Tensor:
        return set2set(graphs, x, self.lstm, [depth(self.steps, nodes) for nodes in graphs.counts])


def attended(graphs: Graphs, x: Tensor, query: Tensor) -> Tensor:
    """[B, F]: the sum of x over the nodes, weighted by the softmax of x . query."""
    scores = (x * graphs.spread(query)).sum(-1, keepdim=True)
    return graphs.weighted_sum(graphs.softmax(scores), x)


def set2set(graphs: Graphs, x: Tensor, lstm: nn.LSTMCell, steps: Sequence[int]) -> Tensor:
    """q* of each graph after its own number of steps."""
    for quick in FAST_SET2SETS:
        last = quick(graphs, x, lstm, steps)
        if last is not None:
            return last
    size = x.shape[-1]
    # q is both the first half of the LSTM's input and its hidden state: one product with the sum of both weights.
    of_query = lstm.weight_ih[:, :size] + lstm.weight_hh
    weight = torch.cat([of_query, lstm.weight_ih[:, size:]], dim=1)
    bias = lstm.bias_ih + lstm.bias_hh
    found = x.new_zeros(len(steps), 2 * size)
    memory = x.new_zeros(len(steps), size)
    shortest = min(steps)
    for step in range(max(steps)):
        enter, forget, candidate, leave = linear(found, weight, bias).chunk(4, dim=-1)
        memory = forget.sigmoid() * memory + enter.sigmoid() * candidate.tanh()
        query = leave.sigmoid() * memory.tanh()
        after = torch.cat([query, attended(graphs, x, query)], dim=-1)
        if step >= shortest:  # a graph that is done keeps its q*; its memory is not asked again
            going_on = torch.tensor([step < own for own in steps], device=x.device)
            after = torch.where(going_on[:, None], after, found)
        found = after
    return found
