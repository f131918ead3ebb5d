"""Segments: ops of a step in order, cut into pieces of about equal time, with the tensors that each needs and gives.

A segment can start when the variables of all its ops are there. Its gradients leave when it ends. More segments are
nearer to the truth, where every op starts by itself, and cost more events; twelve change a step by less than 1 %.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from driple.pipeline.graph.public import TrainingStep, Transfer
from driple.simulator.op_costs import OpCosts


@dataclass
class Moved:
    """Tensors of a segment from or to one server."""

    bytes: float = 0.0
    tensors: int = 0


@dataclass
class Segment:
    """A stretch of a worker's step."""

    wall_s: float = 0.0
    """Time that it takes alone."""
    busy_s: float = 0.0
    """Of it, the device computes."""
    memory_s: float = 0.0
    """Of it, device memory is read or written."""
    pulls: dict[int, Moved] = field(default_factory=dict)
    """By server: what must be here before it starts."""
    pushes: dict[int, Moved] = field(default_factory=dict)
    """By server: what is ready when it ends."""
    reduced: Moved = field(default_factory=Moved)
    """What an all-reduce takes when it ends."""


def cut(step: TrainingStep, costs: OpCosts, pieces: int) -> list[Segment]:
    """The segments of a step, each with about the same time."""
    wall = np.asarray(costs.wall_s)
    total = float(wall.sum())
    middle = np.cumsum(wall) - wall / 2
    place = np.minimum(middle / max(total, 1e-12) * pieces, pieces - 1).astype(np.int64)
    times = [np.bincount(place, values, minlength=pieces).tolist() for values in costs]
    segments = [Segment(*values) for values in zip(*times, strict=True)]
    _spread(step.pulls, place.tolist(), [one.pulls for one in segments])
    _spread(step.pushes, place.tolist(), [one.pushes for one in segments])
    for transfer in step.reduced:
        _add(segments[place[transfer.op]].reduced, transfer)
    return segments


def _spread(transfers: Iterable[Transfer], place: list[int], tables: list[dict[int, Moved]]) -> None:
    for transfer in transfers:
        _add(tables[place[transfer.op]].setdefault(transfer.server, Moved()), transfer)


def _add(moved: Moved, transfer: Transfer) -> None:
    moved.bytes += transfer.bytes
    moved.tensors += 1
