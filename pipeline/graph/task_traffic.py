"""Bytes that a worker receives from the other tasks of its job in a step, and bytes that it sends to them.

A tensor that several ops of the worker take is sent once, as the runtime does it. Collective ops name no partner, so
their outputs count in both directions. Of an all-reduce whose graph has no collective ops, gradients are what an
optimiser applies. A graph for one machine names no other task; it counts as if its variables were on one server: the
worker receives every variable that a step reads and sends every one that it updates. A graph without variables has no
known traffic.

Servers do not share the load evenly: a large variable is on one of them. A step waits for the server that sends most,
so `busiest` has its part.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from driple.pipeline.graph.device_placement import parse

if TYPE_CHECKING:
    from driple.pipeline.graph.raw_graph import RawGraph

_COLLECTIVE = "Collective"


@dataclass(frozen=True)
class TaskTraffic:
    """Bytes of a worker in a step; NaN if the graph names no other task and has no variables."""

    received: float
    sent: float
    busiest: float
    """The part of `received` that comes from the task that sends most."""


def task_traffic(raw: RawGraph, mine: NDArray[np.int64]) -> TaskTraffic:
    """The traffic of the worker that has these ops."""
    known = {name: parse(name) for name in set(raw.devices)}
    tasks = {(known[raw.devices[op]].job, known[raw.devices[op]].task) for op in mine.tolist()}
    others = {name for name, device in known.items() if device.job and (device.job, device.task) not in tasks}
    elsewhere = np.array([name in others for name in raw.devices], dtype=bool)
    reduced = [op for op in mine.tolist() if raw.ops[op].startswith(_COLLECTIVE)]
    if not elsewhere.any() and not reduced:
        received, sent = _of_gradients(raw) if raw.all_reduce else _of_variables(raw)
        return TaskTraffic(received, sent, busiest=received)
    here: NDArray[np.bool_] = np.zeros(len(raw.ops), dtype=bool)
    here[mine] = True
    source, destination = raw.edges[:, 0], raw.edges[:, 1]
    both_ways = float(raw.bytes[reduced].sum())
    coming, going = elsewhere[source] & here[destination], here[source] & elsewhere[destination]
    by_task: dict[tuple[str | None, int | None], list[int]] = defaultdict(list)
    for edge in np.flatnonzero(coming).tolist():
        device = known[raw.devices[raw.edges[edge, 0]]]
        by_task[device.job, device.task].append(edge)
    given = [_tensors(raw, edges) for edges in by_task.values()]
    return TaskTraffic(
        received=sum(given) + both_ways,
        sent=_tensors(raw, np.flatnonzero(going)) + both_ways,
        busiest=max(given, default=0.0) + both_ways,
    )


def _tensors(raw: RawGraph, edges: Iterable[int]) -> float:
    """Bytes of the tensors on these edges, each counted once."""
    found = {(int(raw.edges[edge, 0]), int(raw.edge_outputs[edge])) for edge in edges}
    return sum(raw.tensor_bytes(op, output) for op, output in found)


_VARIABLES = frozenset({"Variable", "VariableV2", "VarHandleOp"})
_READS = frozenset({"Identity", "ReadVariableOp"})
_UPDATES = re.compile(r"(Resource)?(Sparse)?(Apply|Assign|Scatter)|(Is|Var).*Initialized|Destroy|Save|Restore")


_APPLIES = re.compile(r"(Resource)?(Sparse)?Apply")


def _of_gradients(raw: RawGraph) -> tuple[float, float]:
    """Bytes of the variables that an optimiser updates. Moving averages are not summed over the workers."""
    updated = {op for op, kind in enumerate(raw.ops) if _APPLIES.match(kind)}
    first: dict[int, int] = {}  # the first input of an update is its variable
    for source, destination in raw.edges.tolist():
        if destination in updated:
            first.setdefault(destination, source)
    size = sum(float(raw.bytes[variable]) for variable in set(first.values()))
    return (size, size) if first else _of_variables(raw)


def _of_variables(raw: RawGraph) -> tuple[float, float]:
    """Bytes of the variables that something other than an update reads, and of those among them that are updated."""
    takers: dict[int, list[int]] = {}
    for source, destination in raw.edges.tolist():
        takers.setdefault(source, []).append(destination)
    variables = [op for op, kind in enumerate(raw.ops) if kind in _VARIABLES]
    if not variables:
        return float("nan"), float("nan")
    received = sent = 0.0
    for variable in variables:
        direct = takers.get(variable, [])
        reads = [op for op in direct if raw.ops[op] in _READS]
        users = [op for op in direct if op not in reads] + [user for op in reads for user in takers.get(op, [])]
        used = [op for op in users if not _UPDATES.match(raw.ops[op])]
        size = max([float(raw.bytes[variable]), *(float(raw.bytes[op]) for op in reads)])
        if not size:  # a handle of which only parts are gathered
            size = sum(float(raw.bytes[op]) for op in used)
        if used:
            received += size
            sent += size if len(used) < len(users) else 0.0
    return received, sent or received  # a graph without updates still counts as a training step
