"""Number of groups of a graph, by policy.

    none            every op is a group
    uniform:M       M groups
    proportional    log10 of the mean number of ops of the graph's batch (a dataset's graphs by size, cut into batches)
    sqrt            the square root of the number of ops
    linear:K        a group for every K ops

Rounded to the nearest whole number, a half upwards; at least 1 and at most the number of ops.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable
from dataclasses import dataclass

from driple.contracts.errors import BadInput, shown

BATCH = 32
"""Graphs per batch, as in the published training, where the graphs of a batch share M."""

_TAKES_NUMBER = {"none": False, "uniform": True, "proportional": False, "sqrt": False, "linear": True}


@dataclass(frozen=True)
class SizeBatches:
    """How a dataset's graphs were split into batches, so that a single graph gets the M of its batch.

    A graph belongs to the first batch whose largest graph is not smaller; one larger than all belongs to the last.
    """

    largest: tuple[int, ...]
    """Number of ops of the largest graph of each batch, increasing."""
    groups: tuple[int, ...]
    """M of each batch."""

    def __post_init__(self) -> None:
        if not self.largest or len(self.largest) != len(self.groups):
            raise BadInput(f"{len(self.largest)} batches of graphs with {len(self.groups)} numbers of groups")
        if list(self.largest) != sorted(set(self.largest)) or min(self.groups) < 1:
            raise BadInput("batches of graphs must go from small to large and have at least one group")

    def groups_of(self, ops: int) -> int:
        return self.groups[min(bisect.bisect_left(self.largest, ops), len(self.groups) - 1)]


def size_batches(ops: Iterable[int], per_batch: int = BATCH) -> SizeBatches:
    """Splits graphs into batches by their number of ops; equal sizes stay together. Raises BadInput without graphs."""
    waiting = sorted(ops)
    if not waiting:
        raise BadInput("no graphs to split into batches")
    largest, groups = [], []
    while waiting:
        end = bisect.bisect_right(waiting, waiting[min(per_batch, len(waiting)) - 1])
        batch, waiting = waiting[:end], waiting[end:]
        largest.append(batch[-1])
        groups.append(max(1, _nearest(math.log10(sum(batch) / len(batch)))))
    return SizeBatches(tuple(largest), tuple(groups))


def group_count(policy: str, ops: int, batches: SizeBatches | None) -> int:
    """M of a graph. Raises BadInput for an unknown policy, or `proportional` without the dataset's batches."""
    name, number = parse(policy)
    if name == "none":
        return ops
    if name == "uniform":
        wanted = number
    elif name == "sqrt":
        wanted = _nearest(math.sqrt(ops))
    elif name == "linear":
        wanted = _nearest(ops / number)
    elif batches is None:
        raise BadInput("grouping 'proportional' needs the batches of the dataset (they are in its recipe)")
    else:
        wanted = batches.groups_of(ops)
    return min(max(wanted, 1), ops)


def parse(policy: str) -> tuple[str, int]:
    """The name of a policy and its number, 0 where it has none. Raises BadInput for an unknown policy."""
    name, colon, text = policy.partition(":")
    if name not in _TAKES_NUMBER or bool(colon) != _TAKES_NUMBER[name]:
        forms = ", ".join(f"{known}:N" if takes else known for known, takes in _TAKES_NUMBER.items())
        raise BadInput(f"unknown grouping {shown(policy)} (known: {forms})")
    if not colon:
        return name, 0
    if not (text.isascii() and text.isdigit()) or len(text) > 9 or int(text) < 1:
        raise BadInput(f"grouping {shown(policy)}: expected a whole number of at least 1 after the colon")
    return name, int(text)


def _nearest(value: float) -> int:
    return math.floor(value + 0.5)
