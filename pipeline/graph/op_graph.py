"""OpGraph and Grouped: the graph types that everything after file reading uses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from driple.contracts.errors import BadInput
from driple.pipeline.graph.levels import levels
from driple.pipeline.graph.loops import looped_ops

KEPT = 64
"""Size of the caches by wiring: a dataset has some dozens of wirings, at a few hundred kilobytes each."""

FEATURES = ("frequency", "bytes", "ops")
"""Columns of `Grouped.features`: summed op-type frequency, summed tensor size in bytes, number of ops."""


class Wiring(NamedTuple):
    """Ops and edges without sizes: a hashable key, so that results that depend on these alone are computed once."""

    ops: tuple[str, ...]
    pairs: bytes

    @property
    def edges(self) -> NDArray[np.int64]:
        return np.frombuffer(self.pairs, dtype=np.int64).reshape(-1, 2)


@lru_cache(maxsize=KEPT)
def levels_of(wiring: Wiring) -> NDArray[np.int64]:
    """The level of each op. Read-only: callers share the array."""
    found = levels(wiring.ops, wiring.edges)[0]
    found.flags.writeable = False
    return found


@lru_cache(maxsize=KEPT)
def looped_of(wiring: Wiring) -> NDArray[np.bool_]:
    """Whether each op is in a loop. Read-only: callers share the array."""
    found = looped_ops(wiring.ops, wiring.edges)
    found.flags.writeable = False
    return found


@dataclass(frozen=True, eq=False)
class OpGraph:
    """The ops of one worker that are connected by data edges, in the order of the file."""

    ops: tuple[str, ...]
    """Type of each op."""
    bytes: NDArray[np.float64]
    """Size of all outputs of each op, by the rules of `output_sizes.py`."""
    flops: NDArray[np.float64]
    """FLOPs of one execution; NaN (not 0) if there is no formula."""
    edges: NDArray[np.int64]
    """[E, 2]: source and destination; each pair once, sorted, none to itself."""
    unsized: int = 0
    """Ops whose size is a guess: an unknown dimension, or no shape at all."""
    left_out: int = 0
    """Ops of the worker outside the largest component."""
    bytes_received: float = float("nan")
    """Received from other tasks in a step; NaN if the graph does not tell."""
    bytes_sent: float = float("nan")
    """Sent to other tasks in a step; NaN likewise."""
    bytes_busiest: float = float("nan")
    """Received from the task that sends most; NaN likewise."""
    batch_size: int | None = None
    """Examples per step, if the file of the graph says."""

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
        """Shared by the graphs of all batch sizes."""
        return Wiring(tuple(self.ops), self.edges.astype(np.int64).tobytes())

    @property
    def levels(self) -> NDArray[np.int64]:
        """The level of each op (levels.py). Groups are ordered by level."""
        return levels_of(self.wiring)

    @property
    def looped(self) -> NDArray[np.bool_]:
        """Whether each op is in a loop (loops.py). `bytes` and `flops` are those of one iteration."""
        return looped_of(self.wiring)

    def executions(self, loop_length: int) -> NDArray[np.float64]:
        """How often each op runs in a step, if every loop has this many iterations."""
        return np.where(self.looped, float(loop_length), 1.0)


@dataclass(frozen=True, eq=False)
class Grouped:
    """A graph of groups of ops, in the order of execution."""

    features: NDArray[np.float64]
    """[M, 3]: see FEATURES."""
    edges: NDArray[np.int64]
    """[E, 2]: data edges between groups; each pair once, sorted, none to itself. Both directions may occur."""
    groups: NDArray[np.int64]
    """The group of each op."""


def tidy_edges(edges: NDArray[np.int64], nodes: int) -> NDArray[np.int64]:
    """Each pair once, sorted, none to itself."""
    source, destination = edges[:, 0], edges[:, 1]
    keys = np.sort((source * nodes + destination)[source != destination])
    keys = keys[np.diff(keys, prepend=-1) > 0]  # np.unique takes five times as long
    return np.stack([keys // nodes, keys % nodes], axis=1)


def undirected(edges: NDArray[np.int64], nodes: int) -> NDArray[np.int64]:
    """Each pair once in either direction, the smaller number first; none to itself."""
    return tidy_edges(np.stack([edges.min(axis=1), edges.max(axis=1)], axis=1), nodes)
