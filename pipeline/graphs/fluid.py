"""Fluid communities (Pares et al., 2017) of a connected graph: exactly M groups, each in one piece.

igraph does the flowing, in C. On top of it are two steps of ours. Of two starts the one of the better modularity is
taken. And a fluid may end in several puddles: all but its largest go to the neighbours that they touch most.
"""

from __future__ import annotations

import importlib
import random
import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driple.contracts.errors import DripleError

STARTS = 2
"""How often the fluids are poured. The better of two gains, on average, about half of the spread of one."""

_igraph_generator = threading.Lock()  # igraph has one source of random numbers for the whole process


def communities(nodes: int, edges: NDArray[np.int64], count: int, seed: int = 0) -> NDArray[np.int64]:
    """The community of each node, numbered from 0 to `count` - 1.

    Args:
        nodes: how many there are.
        edges: [E, 2], undirected, each pair once; they must connect all nodes.
        count: 1 to `nodes`.
        seed: the same seed gives the same communities, in every process.
    """
    if count == 1:
        return np.zeros(nodes, dtype=np.int64)
    if count == nodes:
        return np.arange(nodes, dtype=np.int64)
    igraph = _igraph()
    graph = igraph.Graph(nodes, edges.tolist())
    with _igraph_generator:
        # A generator of our own: the process's `random` is neither used nor moved.
        igraph.set_random_number_generator(random.Random(seed))
        try:
            poured = [graph.community_fluid_communities(count).membership for _ in range(STARTS)]
        finally:
            igraph.set_random_number_generator(random)  # as igraph has it from its import
    best = max(poured, key=graph.modularity)  # the first of equals
    return _without_puddles(igraph, np.asarray(best, dtype=np.int64), edges)


def components(nodes: int, edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """The weakly connected component of each node."""
    graph = _igraph().Graph(nodes, edges.tolist())
    return np.asarray(graph.connected_components(mode="weak").membership, dtype=np.int64)


def _without_puddles(igraph: Any, membership: NDArray[np.int64], edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """Gives every piece of a community but its largest to the community that it has most edges to."""
    ends = membership[edges]
    inside = igraph.Graph(len(membership), edges[ends[:, 0] == ends[:, 1]].tolist())
    piece = np.asarray(inside.connected_components().membership, dtype=np.int64)  # numbered by their first node
    size = np.bincount(piece)
    home: NDArray[np.int64] = np.empty(len(size), dtype=np.int64)
    home[piece] = membership
    if len(size) == home.max() + 1:
        return membership
    largest = np.full(home.max() + 1, -1)
    for number in np.argsort(-size, kind="stable").tolist():
        if largest[home[number]] < 0:
            largest[home[number]] = number
    home[np.setdiff1d(np.arange(len(size)), largest)] = -1
    crossing = piece[edges]
    crossing = crossing[crossing[:, 0] != crossing[:, 1]]
    crossing = np.concatenate([crossing, crossing[:, ::-1]])
    while (loose := home < 0).any():  # a piece may touch nothing but others that are loose as well, until they are not
        touching = crossing[loose[crossing[:, 0]] & ~loose[crossing[:, 1]]]
        votes: NDArray[np.int64] = np.zeros((len(size), len(largest)), dtype=np.int64)
        np.add.at(votes, (touching[:, 0], home[touching[:, 1]]), 1)
        found = np.unique(touching[:, 0])
        home[found] = votes[found].argmax(axis=1)
    return home[piece]


def _igraph() -> Any:
    try:
        return importlib.import_module("igraph")
    except ImportError:
        raise DripleError("grouping a graph needs igraph, and there is none here: pip install igraph") from None
