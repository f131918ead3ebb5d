"""Graph attention (Velickovic et al., 2018).

    y = ELU(sum over w of a_vw W x_w + b),   a = softmax over w of LeakyReLU_0.2(p . W x_v + q . W x_w)

w goes over v's neighbours and v itself.

Several heads, each with its own p, q and part of W, side by side: 4 where the output divides by 4, else 1.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import elu

from driple.inspector.network.batching.graph_batch import Graphs

_HEADS = 4


class GatLayer(nn.Module):  # type: ignore[misc]
    """x [..., inputs] to y [..., outputs]."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.heads = _HEADS if outputs % _HEADS == 0 else 1
        size = outputs // self.heads
        self.weight = nn.Linear(inputs, outputs, bias=False)
        self.of_self = nn.Parameter(nn.init.xavier_uniform_(torch.empty(self.heads, size)))
        self.of_neighbour = nn.Parameter(nn.init.xavier_uniform_(torch.empty(self.heads, size)))
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, graphs: Graphs, x: Tensor) -> Tensor:
        values = self.weight(x)
        by_head = values.unflatten(-1, (self.heads, -1))
        of_self = (by_head * self.of_self).sum(-1)
        of_neighbour = (by_head * self.of_neighbour).sum(-1)
        return elu(graphs.attend(of_self, of_neighbour, values) + self.bias)
