"""Message passing (Gilmer et al., 2017), with messages that depend on both ends.

m = sum over neighbours w of ReLU(P x_v + Q x_w + c),   y = LeakyReLU_0.01(R x_v + S m + d)
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from driple.inspector.network.batching.graph_batch import Graphs


class MpnnLayer(nn.Module):  # type: ignore[misc]
    """x [..., inputs] to y [..., outputs]."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.of_self = nn.Linear(inputs, outputs)
        self.of_neighbour = nn.Linear(inputs, outputs, bias=False)
        self.state = nn.Linear(inputs, outputs)
        self.message = nn.Linear(outputs, outputs, bias=False)

    def forward(self, graphs: Graphs, x: Tensor) -> Tensor:
        messages = graphs.messages(self.of_self(x), self.of_neighbour(x))
        return leaky_relu(self.state(x) + self.message(messages), 0.01)
