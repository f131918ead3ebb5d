"""Traffic of a task summed from its TCP flows, for tasks that share an interface."""

from __future__ import annotations

from typing import Any

import numpy as np

FLOWS_TX = "flows_tx_bytes"
FLOWS_RX = "flows_rx_bytes"


def task_traffic(t_ns: Any, flow: Any, sent: Any, received: Any) -> tuple[Any, Any, Any]:
    """Counters of a task as the sum over its flows.

    A flow that is there at the first read counts from what it had then; one that comes later counts from nothing, since
    all that it has was sent meanwhile. One that goes takes nothing away.

    Args:
        t_ns: when each flow was read.
        flow: which flow.
        sent: bytes it had sent.
        received: bytes it had received.

    Returns:
        Times of reads, in order, and what was sent and received until each.
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
