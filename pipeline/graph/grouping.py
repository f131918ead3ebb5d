"""Groups the ops of a graph. Datasets and predictions use the same function."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from driple.pipeline.graph.fluid_communities import communities
from driple.pipeline.graph.group_count import SizeBatches, group_count, parse, size_batches
from driple.pipeline.graph.op_frequencies import frequencies, op_frequency
from driple.pipeline.graph.op_graph import (
    FEATURES,
    KEPT,
    Grouped,
    OpGraph,
    Wiring,
    levels_of,
    looped_of,
    tidy_edges,
    undirected,
)


def group(
    graph: OpGraph,
    policy: str,
    frequency: Mapping[str, float],
    seed: int = 0,
    *,
    context: SizeBatches | None = None,
) -> Grouped:
    """Groups the ops of a graph by fluid communities. The same arguments give the same groups in every process.

    There are always M groups (or as many as ops, if fewer), none empty. If the graph is connected, so is each group.
    The components of a disconnected graph, which `read_graph` never returns, share the groups by size; with more
    components than groups, the smallest components are merged.

    Args:
        graph: the graph.
        policy: number of groups; see `group_count.py`.
        frequency: frequencies of op types over the dataset.
        seed: random seed of the start positions.
        context: the dataset's batches, for `proportional`.

    Raises:
        BadInput: unknown policy, or no context for `proportional`.
    """
    nodes = len(graph.ops)
    count = group_count(policy, nodes, context)
    groups = groups_of(graph.wiring, count, seed)
    per_op = np.stack([np.asarray(frequencies(graph.ops, frequency)), graph.bytes, np.ones(nodes)], axis=1)
    features = np.zeros((count, len(FEATURES)))
    np.add.at(features, groups, per_op)
    return Grouped(features, tidy_edges(groups[graph.edges].reshape(-1, 2), count), groups)


@dataclass(frozen=True)
class Recipe:
    """Everything that turns a graph into features. Stored with a dataset and with an inspector."""

    policy: str
    frequency: dict[str, float]
    batches: SizeBatches
    seed: int = 0

    def __post_init__(self) -> None:
        parse(self.policy)

    def group(self, graph: OpGraph) -> Grouped:
        """Groups a graph in the same way as the graphs of the dataset."""
        return group(graph, self.policy, self.frequency, self.seed, context=self.batches)


def recipe_of(
    graphs: Iterable[OpGraph], policy: str, seed: int = 0, frequency: Mapping[str, float] | None = None
) -> Recipe:
    """The recipe of a dataset with these graphs, each given once; `frequency` replaces their own frequencies."""
    kept = list(graphs)
    table = op_frequency(kept) if frequency is None else dict(frequency)
    return Recipe(policy, table, size_batches(len(graph.ops) for graph in kept), seed)


@lru_cache(maxsize=KEPT)
def groups_of(wiring: Wiring, count: int, seed: int) -> NDArray[np.int64]:
    """The group of each op. Read-only: graphs that differ only in sizes share it."""
    nodes = len(wiring.ops)
    found = communities(nodes, undirected(wiring.edges, nodes), count, seed)
    groups = _in_order(found, levels_of(wiring))
    groups.flags.writeable = False
    return groups


def forget_wirings() -> None:
    """Clears the caches, for benchmarks."""
    groups_of.cache_clear()
    levels_of.cache_clear()
    looped_of.cache_clear()


def _in_order(found: NDArray[np.int64], level: NDArray[np.int64]) -> NDArray[np.int64]:
    """Numbers groups by the mean level of their ops, then by their first op."""
    sizes = np.bincount(found)
    mean = np.bincount(found, weights=level) / sizes
    first = np.full(len(sizes), len(found))
    np.minimum.at(first, found, np.arange(len(found)))
    rank: NDArray[np.int64] = np.empty(len(sizes), dtype=np.int64)
    rank[np.lexsort((first, mean))] = np.arange(len(sizes))
    return rank[found]
