"""Maximum of the states, channel by channel: r = max over nodes of x."""

from __future__ import annotations

from torch import Tensor, nn

from driple.inspector.network.batching.graph_batch import Graphs


class MaxReadout(nn.Module):  # type: ignore[misc]
    """x [..., inputs] to [B, inputs]."""

    def __init__(self, inputs: int) -> None:
        super().__init__()
        self.outputs = inputs

    def forward(self, graphs: Graphs, x: Tensor) -> Tensor:
        return graphs.pool_max(x)
