"""Dense execution: a padded batch, an adjacency matrix for each graph, batched matrix products.

Padding rows have no neighbours. A layer's bias may fill them, but does not spread, and readouts ignore them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

_NEVER = float("-inf")


@dataclass(frozen=True, eq=False)
class Edges:
    """Edges of a padded batch, rows numbered through, sorted by node."""

    node: Tensor
    neighbour: Tensor
    lengths: Tensor
    """Number of edges of each row."""

    def of_node(self, x: Tensor) -> Tensor:
        return x.reshape(-1, x.shape[-1]).index_select(0, self.node)

    def of_neighbour(self, x: Tensor) -> Tensor:
        return x.reshape(-1, x.shape[-1]).index_select(0, self.neighbour)

    def reduce(self, along: Tensor, how: str) -> Tensor:
        """[edges, F] to [rows, F]: `sum`, `max` or `min` over the edges of each row."""
        return torch.segment_reduce(along, how, lengths=self.lengths, axis=0, unsafe=True)


def _edges(adjacency: Tensor) -> Edges:
    graph, node, neighbour = adjacency.nonzero(as_tuple=True)
    first = graph * adjacency.shape[1]
    return Edges(first + node, first + neighbour, (adjacency != 0).sum(-1).flatten())


class DenseGraphs:
    """See Graphs."""

    def __init__(self, features: Tensor, adjacency: Tensor, counts: Sequence[int]) -> None:
        """Takes features [B, N, F], symmetric adjacency [B, N, N] without self-loops, and the nodes of each graph."""
        self.features = features
        self.adjacency = adjacency
        self.counts = tuple(counts)
        self.ragged = any(count != features.shape[1] for count in self.counts)

    @cached_property
    def sizes(self) -> Tensor:
        return torch.tensor(self.counts, dtype=torch.int64, device=self.features.device)

    @cached_property
    def real(self) -> Tensor:
        """[B, N, 1]: which rows are nodes."""
        rows = torch.arange(self.features.shape[1], device=self.features.device)
        return (rows[None, :] < self.sizes[:, None]).unsqueeze(-1)

    @cached_property
    def normalised(self) -> Tensor:
        """D^-1/2 (A + I) D^-1/2, once for all layers; zero in padding rows."""
        with_self = self._with_self
        scale = with_self.sum(-1, keepdim=True).rsqrt()
        result = scale * with_self * scale.transpose(1, 2)
        return result * self.real if self.ragged else result

    @cached_property
    def edges(self) -> Edges:
        """Both directions of every edge."""
        return _edges(self.adjacency)

    @cached_property
    def edges_with_self(self) -> Edges:
        """The same, and an edge from every row to itself."""
        return _edges(self._with_self)

    @property
    def _with_self(self) -> Tensor:
        n = self.adjacency.shape[1]
        return self.adjacency + torch.eye(n, dtype=self.adjacency.dtype, device=self.adjacency.device)

    def to(self, device: object) -> DenseGraphs:
        return DenseGraphs(self.features.to(device), self.adjacency.to(device), self.counts)

    def degree(self) -> Tensor:
        return self.adjacency.sum(-1, keepdim=True)

    def sum(self, x: Tensor) -> Tensor:
        return torch.bmm(self.adjacency, x)

    def normalised_sum(self, x: Tensor) -> Tensor:
        return torch.bmm(self.normalised, x)

    def max(self, x: Tensor) -> Tensor:
        return self._extreme(x, "max")

    def min(self, x: Tensor) -> Tensor:
        return self._extreme(x, "min")

    def _extreme(self, x: Tensor, which: str) -> Tensor:
        # Along edges: a table of all pairs would be N/degree times as large.
        edges = self.edges
        found = edges.reduce(edges.of_neighbour(x), which).masked_fill(edges.lengths[:, None] == 0, 0)
        return found.view_as(x)

    def attend(self, of_self: Tensor, of_neighbour: Tensor, x: Tensor) -> Tensor:
        edges = self.edges_with_self
        scores = leaky_relu(edges.of_node(of_self) + edges.of_neighbour(of_neighbour), 0.2)
        largest = edges.reduce(scores.detach(), "max")
        weights = (scores - edges.of_node(largest)).exp()
        values = edges.of_neighbour(x).unflatten(-1, (of_self.shape[-1], -1))
        total = edges.reduce((weights.unsqueeze(-1) * values).flatten(1), "sum").unflatten(-1, (of_self.shape[-1], -1))
        return (total / edges.reduce(weights, "sum").unsqueeze(-1)).view_as(x)

    def messages(self, of_self: Tensor, of_neighbour: Tensor) -> Tensor:
        edges = self.edges
        along = (edges.of_node(of_self) + edges.of_neighbour(of_neighbour)).relu()
        return edges.reduce(along, "sum").view_as(of_self)

    def pool_sum(self, x: Tensor) -> Tensor:
        return (x * self.real if self.ragged else x).sum(1)

    def pool_mean(self, x: Tensor) -> Tensor:
        return self.pool_sum(x) / self.sizes[:, None]

    def pool_max(self, x: Tensor) -> Tensor:
        return self._hidden(x).amax(1)

    def pool_logsumexp(self, x: Tensor) -> Tensor:
        return self._hidden(x).logsumexp(1)

    def softmax(self, scores: Tensor) -> Tensor:
        return self._hidden(scores).softmax(1)

    def weighted_sum(self, weights: Tensor, x: Tensor) -> Tensor:
        return torch.bmm(weights.transpose(1, 2), x).squeeze(1)

    def spread(self, of_graph: Tensor) -> Tensor:
        return of_graph[:, None, :].expand(-1, self.features.shape[1], -1)

    def keep(self, where: Tensor, new: Tensor, old: Tensor) -> Tensor:
        return torch.where(where[:, None, None], new, old)

    def _hidden(self, x: Tensor) -> Tensor:
        """With -inf in padding rows."""
        return x.masked_fill(~self.real, _NEVER) if self.ragged else x


def dense(features: Sequence[Tensor], edges: Sequence[Tensor]) -> DenseGraphs:
    """A batch from features [n, F] and undirected edges [e, 2], each pair once, of each graph."""
    counts = [len(rows) for rows in features]
    first = features[0]
    together = first.new_zeros((len(counts), max(counts), first.shape[1]))
    adjacency = first.new_zeros((len(counts), max(counts), max(counts)))
    for i, (rows, pairs) in enumerate(zip(features, edges, strict=True)):
        together[i, : len(rows)] = rows
        adjacency[i, pairs[:, 0], pairs[:, 1]] = 1
        adjacency[i, pairs[:, 1], pairs[:, 0]] = 1
    return DenseGraphs(together, adjacency, counts)
