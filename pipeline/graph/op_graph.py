"""OpGraph and Grouped: what graphs are to everything after the reading of files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from driple.contracts.errors import BadInput
from driple.pipeline.graph.levels import levels

KEPT = 64
"""Wirings of which it is kept what follows from them: a dataset has some dozens, at a few hundred kilobytes each."""

FEATURES = ("frequency", "bytes", "ops")
"""Columns of `Grouped.features`: summed op-type frequency, summed tensor size in bytes, number of ops."""


class Wiring(NamedTuple):
    """Ops and edges without their sizes: equal where these are, so that what follows from them is computed once."""

    ops: tuple[str, ...]
    pairs: bytes

    @property
    def edges(self) -> NDArray[np.int64]:
        """As those of the graph."""
        return np.frombuffer(self.pairs, dtype=np.int64).reshape(-1, 2)


@lru_cache(maxsize=KEPT)
def levels_of(wiring: Wiring) -> NDArray[np.int64]:
    """The level of each op; not to be changed, for others get the same array."""
    found = levels(wiring.ops, wiring.edges)[0]
    found.flags.writeable = False
    return found


@dataclass(frozen=True, eq=False)
class OpGraph:
    """The ops of one worker that hang together by data, in the order of the file."""

    ops: tuple[str, ...]
    """Type of each op."""
    bytes: NDArray[np.float64]
    """Size of all outputs of each op, by the rule of `sizes.py`."""
    flops: NDArray[np.float64]
    """Of one execution; NaN where there is no formula, which is not 0."""
    edges: NDArray[np.int64]
    """[E, 2]: source and destination; each pair once, sorted, none to itself."""
    unsized: int = 0
    """Ops whose size rests on a guess: an unknown dimension, or no shape at all."""
    left_out: int = 0
    """Ops of the worker outside the largest component."""
    bytes_received: float = float("nan")
    """That the worker takes from other tasks in a step; NaN where the graph says nothing of them."""
    bytes_sent: float = float("nan")
    """That other tasks take from the worker in a step; NaN likewise."""
    bytes_busiest: float = float("nan")
    """Of those received, those of the one task that gives most; NaN likewise."""

    def __post_init__(self) -> None:
        nodes = len(self.ops)
        if not nodes:
            raise BadInput("a graph without ops")
        if self.bytes.shape != (nodes,) or self.flops.shape != (nodes,):
            raise BadInput(f"a graph of {nodes} ops with {self.bytes.size} sizes and {self.flops.size} FLOP counts")
        if self.edges.ndim != 2 or self.edges.shape[1] != 2:
            raise BadInput(f"edges of shape {self.edges.shape}: expected [E, 2]")
        if self.edges.size and not 0 <= self.edges.min() <= self.edges.max() < nodes:
            raise BadInput(f"an edge beyond the {nodes} ops of its graph")

    @property
    def wiring(self) -> Wiring:
        """What it has in common with the graphs of other batch sizes."""
        return Wiring(tuple(self.ops), self.edges.astype(np.int64).tobytes())

    @property
    def levels(self) -> NDArray[np.int64]:
        """Of each op, see levels.py: groups are ordered by them, and they say how deep a graph is."""
        return levels_of(self.wiring)


@dataclass(frozen=True, eq=False)
class Grouped:
    """A graph of groups of ops, in the order in which their ops run."""

    features: NDArray[np.float64]
    """[M, 3]: see FEATURES."""
    edges: NDArray[np.int64]
    """[E, 2]: from group to group, as data flows; each pair once, sorted, none to itself. Both ways may be there."""
    groups: NDArray[np.int64]
    """The group of each op."""


def tidy_edges(edges: NDArray[np.int64], nodes: int) -> NDArray[np.int64]:
    """Each pair once, sorted, none to itself."""
    source, destination = edges[:, 0], edges[:, 1]
    keys = np.sort((source * nodes + destination)[source != destination])
    keys = keys[np.diff(keys, prepend=-1) > 0]  # np.unique does the same in five times the time
    return np.stack([keys // nodes, keys % nodes], axis=1)


def undirected(edges: NDArray[np.int64], nodes: int) -> NDArray[np.int64]:
    """Each pair once whichever way it goes, the smaller number first; none to itself."""
    return tidy_edges(np.stack([edges.min(axis=1), edges.max(axis=1)], axis=1), nodes)
