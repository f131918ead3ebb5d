"""Level of an op: the length of the longest path to it along data edges."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LOOP_BACK = frozenset({"NextIteration", "RefNextIteration"})
"""Ops that lead back to the start of a while loop: a loop counts as executed once."""


def levels(ops: Sequence[str], edges: NDArray[np.int64]) -> tuple[NDArray[np.int64], int | None]:
    """The level of each op, from 0; and an op of a cycle that is not a while loop, or None.

    Ops of such cycles get levels too: the first one is treated as if its remaining inputs were done.
    """
    count = len(ops)
    forward = edges
    if not LOOP_BACK.isdisjoint(ops):
        back = np.array([op in LOOP_BACK for op in ops], dtype=bool)
        forward = edges[~back[edges[:, 0]]]
    forward = forward[np.argsort(forward[:, 0], kind="stable")]
    begins = np.concatenate([[0], np.cumsum(np.bincount(forward[:, 0], minlength=count))]).tolist()
    following = forward[:, 1].tolist()
    waiting = np.bincount(forward[:, 1], minlength=count).tolist()
    level = [0] * count
    done = [False] * count
    ready = [position for position in range(count) if not waiting[position]]
    stuck: int | None = None
    first = 0
    while True:
        while ready:
            position = ready.pop()
            if done[position]:
                continue
            done[position] = True
            deeper = level[position] + 1
            for later in following[begins[position] : begins[position + 1]]:
                waiting[later] -= 1
                if not done[later]:
                    if level[later] < deeper:
                        level[later] = deeper
                    if not waiting[later]:
                        ready.append(later)
        while first < count and done[first]:
            first += 1
        if first == count:
            return np.asarray(level, dtype=np.int64), stuck
        stuck = first if stuck is None else stuck
        ready.append(first)
