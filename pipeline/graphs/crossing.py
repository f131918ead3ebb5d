"""What a worker receives from the other tasks of its job in a step, and what it sends them, as the graph says it.

A tensor that several ops of the worker take comes once, as the runtime does it. Collective ops name no partner: what
they put out counts both ways. Where nothing is said of other tasks, as in a graph for one machine, nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from driple.pipeline.graphs.devices import parse

if TYPE_CHECKING:
    from driple.pipeline.graphs.raw import RawGraph

_COLLECTIVE = "Collective"


def crossing(raw: RawGraph, mine: NDArray[np.int64]) -> tuple[float, float]:
    """Bytes that the worker with these ops receives and sends in a step.

    NaN twice where the graph says nothing of other tasks.
    """
    known = {name: parse(name) for name in set(raw.devices)}
    tasks = {(known[raw.devices[op]].job, known[raw.devices[op]].task) for op in mine.tolist()}
    others = {name for name, device in known.items() if device.job and (device.job, device.task) not in tasks}
    elsewhere = np.array([name in others for name in raw.devices], dtype=bool)
    reduced = [op for op in mine.tolist() if raw.ops[op].startswith(_COLLECTIVE)]
    if not elsewhere.any() and not reduced:
        return float("nan"), float("nan")
    here: NDArray[np.bool_] = np.zeros(len(raw.ops), dtype=bool)
    here[mine] = True
    source, destination = raw.edges[:, 0], raw.edges[:, 1]
    both_ways = float(raw.bytes[reduced].sum())
    received, sent = (
        _tensors(raw, np.flatnonzero(chosen)) + both_ways
        for chosen in (elsewhere[source] & here[destination], here[source] & elsewhere[destination])
    )
    return received, sent


def _tensors(raw: RawGraph, edges: Iterable[int]) -> float:
    """Bytes of the tensors that go along these edges, each once."""
    found = {(int(raw.edges[edge, 0]), int(raw.edge_outputs[edge])) for edge in edges}
    return sum(raw.tensor_bytes(op, output) for op, output in found)
