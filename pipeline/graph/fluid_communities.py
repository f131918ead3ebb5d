"""Fluid communities (Pares et al., 2017): exactly M groups, each connected if the graph is.

igraph runs the algorithm in C. Its communities may be disconnected. All but the largest component of a community then
join the neighbouring community with most edges to them. This leaves M groups and gives a higher modularity than
networkx (docs/benchmarks/grouping-speed.md).

For a very long graph with few groups, such as a chain of 25 000 ops in 4, the algorithm would take minutes. There each
op joins the nearest of M ops that are evenly spaced from one end to the other.
"""

from __future__ import annotations

import importlib
import random
import threading
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

MAX_WANDERING = 2e7
"""Limit of ops x graph length / groups: igraph takes seconds up to here, and minutes at ten times as much."""

_igraph_generator = threading.Lock()  # igraph has one random number generator per process


def communities(nodes: int, edges: NDArray[np.int64], count: int, seed: int = 0) -> NDArray[np.int64]:
    """The community of each node, numbered from 0 to `count` - 1; none is empty. Equal seeds give equal communities.

    Edges are [E, 2], undirected, each pair once; `count` is 1 to `nodes`.
    """
    if count == 1:
        return np.zeros(nodes, dtype=np.int64)
    if count == nodes:
        return np.arange(nodes, dtype=np.int64)
    igraph = importlib.import_module("igraph")
    graph = igraph.Graph(nodes, edges.tolist())
    if graph.is_connected():
        return _fluid(igraph, graph, edges, count, seed)
    component = np.asarray(graph.connected_components().membership, dtype=np.int64)
    result: NDArray[np.int64] = np.empty(nodes, dtype=np.int64)
    taken = 0
    for members, share in _shares(component, count):
        number: NDArray[np.int64] = np.full(nodes, -1, dtype=np.int64)
        number[members] = np.arange(len(members))
        own = number[edges]
        result[members] = taken + communities(len(members), own[(own >= 0).all(axis=1)], share, seed)
        taken += share
    return result


def components(nodes: int, edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """The weakly connected component of each node."""
    graph = importlib.import_module("igraph").Graph(nodes, edges.tolist())
    return np.asarray(graph.connected_components(mode="weak").membership, dtype=np.int64)


def _fluid(igraph: Any, graph: Any, edges: NDArray[np.int64], count: int, seed: int) -> NDArray[np.int64]:
    nodes = graph.vcount()
    if nodes * nodes / count > MAX_WANDERING and nodes * _length(graph) / count > MAX_WANDERING:
        return _nearest(graph, count)
    with _igraph_generator:
        # Our own generator, so that the state of the process's `random` does not change.
        igraph.set_random_number_generator(random.Random(seed))
        try:
            fluid = graph.community_fluid_communities(count).membership
        finally:
            igraph.set_random_number_generator(random)  # igraph's default
    return _connected(graph, np.asarray(fluid, dtype=np.int64), edges)


def _shares(component: NDArray[np.int64], count: int) -> list[tuple[NDArray[np.int64], int]]:
    """The components of a graph, largest first, each with its number of groups: by size, at least 1.

    With more components than groups, the smallest components are merged.
    """
    sizes = np.bincount(component)
    order = np.argsort(-sizes, kind="stable")
    if len(sizes) >= count:
        pieces = [np.flatnonzero(component == number) for number in order[: count - 1].tolist()]
        rest = np.flatnonzero(np.isin(component, order[count - 1 :]))
        return [(piece, 1) for piece in (*pieces, rest)]
    shares: NDArray[np.int64] = np.ones(len(sizes), dtype=np.int64)
    for _ in range(count - len(sizes)):  # the next group goes to the component with the largest groups
        shares[np.where(shares < sizes, sizes / shares, 0.0).argmax()] += 1
    return [(np.flatnonzero(component == number), int(shares[number])) for number in order.tolist()]


def _length(graph: Any) -> int:
    """Approximate diameter: the largest distance from the op that is farthest from the first one."""
    return len(graph.bfs(graph.bfs(0)[0][-1])[1]) - 1


def _nearest(graph: Any, count: int) -> NDArray[np.int64]:
    """Assigns each node to the nearest of `count` nodes that are evenly spaced by distance from one end."""
    order = graph.bfs(graph.bfs(0)[0][-1])[0]
    reached = [order[(2 * number + 1) * len(order) // (2 * count)] for number in range(count)]
    found: NDArray[np.int64] = np.full(len(order), -1, dtype=np.int64)
    found[reached] = np.arange(count)
    for node in reached:  # the list grows in the loop: breadth first
        for neighbour in graph.neighbors(node):
            if found[neighbour] < 0:
                found[neighbour] = found[node]
                reached.append(neighbour)
    return found


def _connected(graph: Any, membership: NDArray[np.int64], edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """Moves all but the largest component of a community to the community with most edges to it."""
    ends = membership[edges]
    between = np.flatnonzero(ends[:, 0] != ends[:, 1])
    inside = graph.copy()
    inside.delete_edges(between.tolist())
    piece = np.asarray(inside.connected_components().membership, dtype=np.int64)  # numbered by first node
    sizes = np.bincount(piece)
    first: NDArray[np.int64] = np.empty(len(sizes), dtype=np.int64)
    first[piece] = membership
    home: list[int] = first.tolist()
    kept: dict[int, int] = {}
    for number in np.argsort(-sizes, kind="stable").tolist():
        kept.setdefault(home[number], number)
    loose = set(range(len(home))) - set(kept.values())
    is_loose = np.isin(np.arange(len(home)), list(loose))
    crossing = piece[edges[between]]
    crossing = crossing[is_loose[crossing].any(axis=1)]
    pairs = [*crossing.tolist(), *crossing[:, ::-1].tolist()]
    while loose:  # a component may touch only other unassigned ones at first
        votes = Counter((here, home[there]) for here, there in pairs if here in loose and there not in loose)
        for (here, group), _ in sorted(votes.items(), key=lambda vote: (vote[1], -vote[0][1])):
            home[here] = group  # the last one wins: most edges, then the lowest number
        loose -= {here for here, _ in votes}
    return np.asarray(home, dtype=np.int64)[piece]
