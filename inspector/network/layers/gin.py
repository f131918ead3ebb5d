"""Graph isomorphism layer (Xu et al., 2019).

    y = LeakyReLU_0.01(W2 ReLU(W1 s + b1) + b2),   s = (1 + e) x + sum over neighbours w of x_w;   e is learned

A plain sum tells apart what a mean or a maximum cannot: how many neighbours say the same.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from driple.inspector.network.batching.graph_batch import Graphs


class GinLayer(nn.Module):  # type: ignore[misc]
    """x [..., inputs] to y [..., outputs]."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.epsilon = nn.Parameter(torch.zeros(1))
        self.enter = nn.Linear(inputs, outputs)
        self.leave = nn.Linear(outputs, outputs)

    def forward(self, graphs: Graphs, x: Tensor) -> Tensor:
        together = (1 + self.epsilon) * x + graphs.sum(x)
        return leaky_relu(self.leave(self.enter(together).relu()), 0.01)
