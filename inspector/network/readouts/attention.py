"""A weighted mean of the states, the weights learned (after Li et al., 2016).

r = sum of a x,   a = softmax over nodes of v . tanh(W x + b)
"""

from __future__ import annotations

from torch import Tensor, nn

from driple.inspector.network.batching.graph_batch import Graphs


class AttentionReadout(nn.Module):  # type: ignore[misc]
    """x [..., inputs] to [B, inputs]."""

    def __init__(self, inputs: int, hidden: int) -> None:
        super().__init__()
        self.enter = nn.Linear(inputs, hidden)
        self.score = nn.Linear(hidden, 1, bias=False)
        self.outputs = inputs

    def forward(self, graphs: Graphs, x: Tensor) -> Tensor:
        weights = graphs.softmax(self.score(self.enter(x).tanh()))
        return graphs.weighted_sum(weights, x)
