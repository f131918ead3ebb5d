"""A cost for each node that adds up: what a step takes is, to a first order, the sum of what its parts take.

    r = [log(sum over nodes of exp(W x + b)), mean of x]

exp makes every node's cost positive, the sum adds them up over the graph, and the logarithm brings the total back to
where targets are learned. The mean beside it says what a typical node is like.
"""

from __future__ import annotations

from torch import Tensor, cat, nn

from driple.inspector.network.batching.graph_batch import Graphs


class CostReadout(nn.Module):  # type: ignore[misc]
    """x [..., inputs] to [B, channels + inputs]."""

    def __init__(self, inputs: int, channels: int) -> None:
        super().__init__()
        self.cost = nn.Linear(inputs, channels)
        self.outputs = channels + inputs

    def forward(self, graphs: Graphs, x: Tensor) -> Tensor:
        return cat([graphs.pool_logsumexp(self.cost(x)), graphs.pool_mean(x)], dim=-1)
