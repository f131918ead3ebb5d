"""Sparse execution: all nodes of a batch one below the other, sums along edges by DGL. For graphs of any size."""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import leaky_relu

from driple.contracts.errors import BadInput


class SparseGraphs:
    """See Graphs."""

    def __init__(self, features: Tensor, edges: Tensor, counts: Sequence[int]) -> None:
        """Takes features [sum of counts, F], both directions of every edge [2, e], and the nodes of each graph."""
        self.dgl = load_dgl()
        self.features = features
        self.edges = edges
        self.counts = tuple(counts)

    @cached_property
    def sizes(self) -> Tensor:
        return torch.tensor(self.counts, dtype=torch.int64, device=self.features.device)

    @cached_property
    def graph_of(self) -> Tensor:
        """The number of the graph of each node."""
        numbers = torch.arange(len(self.counts), device=self.features.device)
        return numbers.repeat_interleave(self.sizes, output_size=len(self.features))

    @cached_property
    def graph(self) -> Any:
        return self.dgl.graph((self.edges[0], self.edges[1]), num_nodes=len(self.features))

    @cached_property
    def with_self(self) -> Any:
        """The same, and an edge from every node to itself."""
        return self.dgl.add_self_loop(self.graph)

    @cached_property
    def scale(self) -> Tensor:
        """D^-1/2 of A + I."""
        return (self.degree() + 1).rsqrt()

    def to(self, device: object) -> SparseGraphs:
        return SparseGraphs(self.features.to(device), self.edges.to(device), self.counts)

    def degree(self) -> Tensor:
        return self.graph.in_degrees().to(self.features.dtype).unsqueeze(-1)

    def sum(self, x: Tensor) -> Tensor:
        return self.dgl.ops.copy_u_sum(self.graph, x)

    def normalised_sum(self, x: Tensor) -> Tensor:
        return self.scale * self.dgl.ops.copy_u_sum(self.with_self, self.scale * x)

    def max(self, x: Tensor) -> Tensor:
        return self._with_neighbours(self.dgl.ops.copy_u_max(self.graph, x))

    def min(self, x: Tensor) -> Tensor:
        return self._with_neighbours(self.dgl.ops.copy_u_min(self.graph, x))

    def _with_neighbours(self, found: Tensor) -> Tensor:
        """Zero where a node has no neighbours: DGL has infinities there."""
        return found.masked_fill(self.degree() == 0, 0)

    def attend(self, of_self: Tensor, of_neighbour: Tensor, x: Tensor) -> Tensor:
        scores = leaky_relu(self.dgl.ops.u_add_v(self.with_self, of_neighbour, of_self), 0.2)
        weights = self.dgl.ops.edge_softmax(self.with_self, scores).unsqueeze(-1)
        values = x.view(len(x), of_self.shape[-1], -1)
        return self.dgl.ops.u_mul_e_sum(self.with_self, values, weights).reshape(x.shape)

    def messages(self, of_self: Tensor, of_neighbour: Tensor) -> Tensor:
        along = self.dgl.ops.u_add_v(self.graph, of_neighbour, of_self).relu()
        return self.dgl.ops.copy_e_sum(self.graph, along)

    def pool_sum(self, x: Tensor) -> Tensor:
        return self.dgl.ops.segment_reduce(self.sizes, x, "sum")

    def pool_mean(self, x: Tensor) -> Tensor:
        return self.pool_sum(x) / self.sizes[:, None]

    def pool_max(self, x: Tensor) -> Tensor:
        # Not segment_reduce: it gives the gradient to one of equal nodes; the dense execution shares it.
        index = self.graph_of[:, None].expand(-1, x.shape[-1])
        return x.new_zeros(len(self.counts), x.shape[-1]).scatter_reduce(0, index, x, "amax", include_self=False)

    def pool_logsumexp(self, x: Tensor) -> Tensor:
        # Minus the largest of its graph, so that exp stays in range; a constant for gradients.
        largest = self.pool_max(x.detach())
        return self.pool_sum((x - self.spread(largest)).exp()).log() + largest

    def softmax(self, scores: Tensor) -> Tensor:
        return (scores - self.spread(self.pool_logsumexp(scores))).exp()

    def weighted_sum(self, weights: Tensor, x: Tensor) -> Tensor:
        return self.pool_sum(weights * x)

    def spread(self, of_graph: Tensor) -> Tensor:
        return of_graph[self.graph_of]

    def keep(self, where: Tensor, new: Tensor, old: Tensor) -> Tensor:
        return torch.where(where[self.graph_of, None], new, old)


def sparse(features: Sequence[Tensor], edges: Sequence[Tensor]) -> SparseGraphs:
    """A batch from features [n, F] and undirected edges [e, 2], each pair once, of each graph.

    Raises:
        BadInput: DGL is not installed.
    """
    counts = [len(rows) for rows in features]
    first = accumulate(counts[:-1], initial=0)
    pairs = torch.cat([own + before for own, before in zip(edges, first, strict=True)]).T
    return SparseGraphs(torch.cat(list(features)), torch.cat([pairs, pairs.flip(0)], dim=1), counts)


def has_dgl() -> bool:
    """Whether DGL is installed; does not load it."""
    return importlib.util.find_spec("dgl") is not None


def load_dgl() -> Any:
    """The module. Raises BadInput if it is not installed."""
    # Without this DGL writes a file into the user's home and prints that it did.
    os.environ.setdefault("DGLBACKEND", "pytorch")
    try:
        return importlib.import_module("dgl")
    except ImportError:
        raise BadInput(
            "the dgl execution needs DGL, which there is for Python 3.11 and older: pip install 'driple[inspector]', "
            "or use --set machine.execution=dense, which gives the same predictions"
        ) from None
