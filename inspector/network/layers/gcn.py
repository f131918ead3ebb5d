"""Graph convolution (Kipf and Welling, 2017), as the authors of Driple use it.

    y = LeakyReLU_0.01(A' (x W) + b),   A' = D^-1/2 (A + I) D^-1/2,   D the row sums of A + I

A node's own state and its neighbours' go through the same weights.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from driple.inspector.network.batching.graph_batch import Graphs


class GcnLayer(nn.Module):  # type: ignore[misc]
    """x [..., inputs] to y [..., outputs]."""

    def __init__(self, inputs: int, outputs: int) -> None:
        """Draw W and b uniformly from +- 1/sqrt(outputs)."""
        super().__init__()
        bound = outputs**-0.5
        self.weight = nn.Parameter(torch.empty(inputs, outputs).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(outputs).uniform_(-bound, bound))

    def forward(self, graphs: Graphs, x: Tensor) -> Tensor:
        inputs, outputs = self.weight.shape
        # The same product in the cheaper order.
        summed = graphs.normalised_sum(x) @ self.weight if inputs < outputs else graphs.normalised_sum(x @ self.weight)
        return leaky_relu(summed + self.bias, 0.01)
