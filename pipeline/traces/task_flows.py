"""Sums the traffic of a task over its TCP flows, for tasks that share an interface."""

from __future__ import annotations

from typing import Any

import numpy as np


def task_traffic(t_ns: Any, flow: Any, sent: Any, received: Any) -> tuple[Any, Any, Any]:
    """Counters of a task as the sum over its flows: times of the reads, and bytes sent and received until then.

    A flow of the first read counts from its value then. A later one counts from zero, because all its bytes were sent
    since. A flow that ends changes nothing.
    """
    reads, read = np.unique(t_ns, return_inverse=True)
    order = np.lexsort((read, flow))
    new = np.r_[True, flow[order][1:] != flow[order][:-1]]
    at = read[order]
    known_before = new & (at == 0)

    def counted(counter: Any) -> Any:
        value = counter[order].astype(np.int64)
        gained = np.diff(value, prepend=0)
        gained[new] = value[new]
        gained[known_before] = 0
        gained = np.maximum(gained, 0)
        return np.cumsum(np.bincount(at, weights=gained, minlength=len(reads)))

    return reads, counted(sent), counted(received)
