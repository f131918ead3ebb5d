"""RawGraph: all ops of a file; and the selection of a worker's ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from driple.contracts.errors import BadInput, shown
from driple.pipeline.graph.device_placement import worker_ops
from driple.pipeline.graph.fluid_communities import components
from driple.pipeline.graph.levels import levels
from driple.pipeline.graph.op_graph import OpGraph, tidy_edges
from driple.pipeline.graph.task_traffic import task_traffic
from driple.pipeline.graph.training_step import OpDetails


@dataclass(frozen=True, eq=False)
class RawGraph:
    """All ops of a file, with their data edges."""

    names: Sequence[str]
    ops: Sequence[str]
    devices: Sequence[str]
    bytes: NDArray[np.float64]
    sized: NDArray[np.bool_]
    """Whether the size is known rather than guessed."""
    flops: NDArray[np.float64]
    edges: NDArray[np.int64]
    """[E, 2]: data edges only; may have duplicates."""
    edge_outputs: NDArray[np.int64]
    """The output of the source that each edge carries."""
    tensor_bytes: Callable[[int, int], float]
    """Bytes of one output of an op."""
    task: str | None = None
    all_reduce: bool = False
    """Whether the job of this graph has no parameter servers: only gradients pass between its tasks."""
    batch_size: int | None = None
    """Examples per step, if the file says."""
    details: Callable[[], OpDetails] | None = None
    """What only a simulation needs, computed on demand; None if the file does not tell."""


def choose(raw: RawGraph, device: str | None) -> OpGraph:
    """The largest connected component of the worker's ops; of equally large ones, the one with the first op.

    Raises BadInput if there are no such ops, or a cycle that is not a while loop.
    """
    if not raw.ops:
        raise BadInput("a graph without ops")
    if raw.edges.size and not 0 <= raw.edges.min() <= raw.edges.max() < len(raw.ops):
        raise BadInput(f"an edge beyond the {len(raw.ops)} ops of the graph")
    _, stuck = levels(raw.ops, raw.edges)
    if stuck is not None:
        raise BadInput(f"op {shown(raw.names[stuck])} depends on itself outside of a while loop")
    mine = np.flatnonzero(worker_ops(raw.devices, device, raw.task))
    edges = _among(mine, raw.edges, len(raw.ops))
    component = components(len(mine), edges)
    part = np.flatnonzero(component == np.bincount(component).argmax())
    chosen = mine[part]
    traffic = task_traffic(raw, mine)
    return OpGraph(
        ops=tuple(raw.ops[position] for position in chosen.tolist()),
        bytes=raw.bytes[chosen],
        flops=raw.flops[chosen],
        edges=tidy_edges(_among(part, edges, len(mine)), len(part)),
        unsized=int((~raw.sized[chosen]).sum()),
        left_out=len(mine) - len(part),
        bytes_received=traffic.received,
        bytes_sent=traffic.sent,
        bytes_busiest=traffic.busiest,
        batch_size=raw.batch_size,
    )


def _among(kept: NDArray[np.int64], edges: NDArray[np.int64], nodes: int) -> NDArray[np.int64]:
    """The edges between the kept nodes, renumbered."""
    number: NDArray[np.int64] = np.full(nodes, -1, dtype=np.int64)
    number[kept] = np.arange(len(kept))
    renumbered = number[edges].reshape(-1, 2)
    return renumbered[(renumbered >= 0).all(axis=1)]
