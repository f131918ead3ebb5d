"""The interface of a batch of graphs for layers and readouts, however neighbours are summed.

Node values are [B, N, F] in the dense execution, where N is the size of the largest graph, and [sum of sizes, F] in the
sparse one. Edges have no direction and no weight.
"""

from __future__ import annotations

from typing import Protocol

from torch import Tensor


class Graphs(Protocol):
    """A batch of B graphs."""

    @property
    def features(self) -> Tensor:
        """Node features; padding rows are zero."""

    @property
    def sizes(self) -> Tensor:
        """[B], int64: nodes of each graph."""

    @property
    def counts(self) -> tuple[int, ...]:
        """The same as integers: reading a tensor would wait for the device."""

    def to(self, device: object) -> Graphs: ...

    # Per node, over its neighbours. Where a node has none: 0.

    def degree(self) -> Tensor:
        """[..., 1]: number of neighbours."""

    def sum(self, x: Tensor) -> Tensor: ...

    def max(self, x: Tensor) -> Tensor: ...

    def min(self, x: Tensor) -> Tensor: ...

    def normalised_sum(self, x: Tensor) -> Tensor:
        """D^-1/2 (A + I) D^-1/2 x, with D the row sums of A + I."""

    def attend(self, of_self: Tensor, of_neighbour: Tensor, x: Tensor) -> Tensor:
        """Sum over w of a_vw x_w, a = softmax over v's neighbours and v of LeakyReLU_0.2(of_self_v + of_neighbour_w).

        of_self and of_neighbour are [..., heads]; x is [..., heads * size], and so is the answer.
        """

    def messages(self, of_self: Tensor, of_neighbour: Tensor) -> Tensor:
        """Sum over v's neighbours w of ReLU(of_self_v + of_neighbour_w)."""

    # Per graph, over its nodes: [B, F].

    def pool_sum(self, x: Tensor) -> Tensor: ...

    def pool_mean(self, x: Tensor) -> Tensor: ...

    def pool_max(self, x: Tensor) -> Tensor: ...

    def pool_logsumexp(self, x: Tensor) -> Tensor: ...

    def softmax(self, scores: Tensor) -> Tensor:
        """Of [..., 1], over the nodes of each graph."""

    def weighted_sum(self, weights: Tensor, x: Tensor) -> Tensor:
        """Sum over nodes of weights [..., 1] times x."""

    def spread(self, of_graph: Tensor) -> Tensor:
        """[B, F] to every node of its graph."""

    def keep(self, where: Tensor, new: Tensor, old: Tensor) -> Tensor:
        """New values where the graph is marked in `where` [B], old ones elsewhere."""
