"""Principal neighbourhood aggregation (Corso et al., 2020): four summaries of the neighbours, at three strengths.

    g = [mean, max, min, deviation] over neighbours,   t = log(1 + degree) / log(1 + 4)
    y = LeakyReLU_0.01(W [x, g, t g, g / t] + b)

The paper divides by the mean log-degree of the training graphs. Here it is that of a node with 4 neighbours, which
groups of ops have about, so that a layer needs nothing but its weights. A node with no neighbours has g = 0.
"""

from __future__ import annotations

import math

from torch import Tensor, cat, nn
from torch.nn.functional import leaky_relu

from driple.inspector.network.batching.graph_batch import Graphs

_USUAL_DEGREE = 4
# Under the root: a deviation of 0, as with one neighbour, would have no gradient.
_LEAST_VARIANCE = 1e-4


class PnaLayer(nn.Module):  # type: ignore[misc]
    """x [..., inputs] to y [..., outputs]."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.linear = nn.Linear(13 * inputs, outputs)

    def forward(self, graphs: Graphs, x: Tensor) -> Tensor:
        degree = graphs.degree()
        at_least_one = degree.clamp(min=1)
        mean = graphs.sum(x) / at_least_one
        variance = (graphs.sum(x * x) / at_least_one - mean * mean).relu()
        deviation = (variance + _LEAST_VARIANCE).sqrt() * (degree > 0)
        found = cat([mean, graphs.max(x), graphs.min(x), deviation], dim=-1)
        strength = (at_least_one + 1).log() / math.log(1 + _USUAL_DEGREE)
        return leaky_relu(self.linear(cat([x, found, strength * found, found / strength], dim=-1)), 0.01)
