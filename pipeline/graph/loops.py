"""Ops of while loops: they run once in each iteration, and a graph has them once.

In a loop of TensorFlow 1 data flow shows which ops are in it: Enter passes a tensor into the loop, Exit out of it. This
also works for a dataset, whose graphs have no names. Constants in a loop take no data, so they are not found; they
compute nothing. Enter and Exit run once.

A name tells it too, except for the counters of backward loops, but includes constants, Enter and Exit. The simulator
counts by names: its costs per op are fitted to these counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_INTO = frozenset({"Enter", "RefEnter"})
_OUT_OF = frozenset({"Exit", "RefExit"})
_NAMED = re.compile(r"(^|/)while(_\d+)?(/|$)")


def looped_ops(ops: Sequence[str], edges: NDArray[np.int64]) -> NDArray[np.bool_]:
    """[N]: whether an op runs in each iteration of a loop, by the data flow. A loop in a loop is one loop."""
    found: NDArray[np.bool_] = np.zeros(len(ops), dtype=bool)
    ready = [place for place, op in enumerate(ops) if op in _INTO]
    if not ready:
        return found
    following: list[list[int]] = [[] for _ in ops]
    for source, destination in edges.tolist():
        following[source].append(destination)
    while ready:
        for later in following[ready.pop()]:
            if not found[later] and ops[later] not in _OUT_OF and ops[later] not in _INTO:
                found[later] = True
                ready.append(later)
    return found


def is_looped(name: str) -> bool:
    """Whether an op of this name is in a while loop of TensorFlow."""
    return _NAMED.search(name) is not None
