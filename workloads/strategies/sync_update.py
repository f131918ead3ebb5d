"""Synchronous update: gradients are applied when those of every worker have arrived, and no worker goes on before.

TensorFlow's SyncReplicasOptimizer takes the tokens to go on from one queue for all workers. A fast worker can take the
token of another, step twice on the same weights, and leave the other waiting at the end: with two or more servers and
steps of 1 ms that happened within a hundred steps. Here each worker has its own queue. The rest is the same: an
accumulator beside each variable, emptied by worker 0 once all workers have added to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# Accumulators drop gradients that are older than the weights. In sync mode there are none, so none may look old.
NEVER_STALE = 2**62


@dataclass(frozen=True)
class SyncUpdate:
    """The ops of a synchronous step."""

    worker_op: Any
    """Run by a worker: sends gradients and waits for its token; its value is the global step after the update."""
    chief_op: Any
    """Also run by worker 0: waits for all gradients, applies their mean, hands out the tokens."""


def sync_update(
    optimiser: Any, gradients: Sequence[tuple[Any, Any]], global_step: Any, *, worker: int, workers: int, device: str
) -> SyncUpdate:
    """Adds a synchronous update by a TF1 optimiser to the default graph, with queues on `device`."""
    import tensorflow.compat.v1 as v1

    sent, means = [], []
    for gradient, variable in gradients:
        with v1.device(variable.device):
            name = variable.op.name + "/gradients"
            if isinstance(gradient, v1.IndexedSlices):
                sparse = v1.SparseConditionalAccumulator(gradient.dtype, variable.shape, name, name="gradients")
                sent.append(sparse.apply_indexed_slices_grad(gradient, NEVER_STALE))
                means.append((sparse.take_indexed_slices_grad(workers), variable))
            else:
                dense = v1.ConditionalAccumulator(gradient.dtype, variable.shape, name, name="gradients")
                sent.append(dense.apply_grad(gradient, NEVER_STALE))
                means.append((dense.take_grad(workers), variable))
    applied = optimiser.apply_gradients(means, global_step=global_step)
    with v1.device(device):
        tokens = [
            v1.FIFOQueue(-1, v1.int64, shapes=(), name="leave", shared_name=f"driple_leave_{index}")
            for index in range(workers)
        ]
        with v1.control_dependencies([applied]):
            now = global_step.read_value()
            chief_op = v1.group(*(token.enqueue(now) for token in tokens), name="chief")
        with v1.control_dependencies(sent):
            worker_op = tokens[worker].dequeue(name="leave_given")
    return SyncUpdate(worker_op, chief_op)
