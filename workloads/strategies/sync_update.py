"""Lock-step: a step is applied when every worker's gradients are there, and no worker goes on before.

TensorFlow's SyncReplicasOptimizer hands out the leave to go on from one queue for all. A fast worker can take the one
that was meant for another, step twice on the same weights, and leave the other waiting at the end: with two or more
servers and steps of a millisecond that was seen within a hundred steps. Here each worker has a queue of its own, and
the rest is the same: an accumulator beside each variable, emptied by worker 0 once all have added to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

# Accumulators drop gradients that are older than the weights. In lock-step there are none, so none may look so.
NEVER_STALE = 2**62


@dataclass(frozen=True)
class SyncUpdate:
    """The two sides of a step."""

    worker_op: Any
    """A worker's: hand in gradients, wait for leave; its value is the job's step after the update."""
    chief_op: Any
    """Worker 0's beside that: wait for all gradients, apply their mean, give everyone leave."""


def sync_update(
    optimiser: Any, gradients: Sequence[tuple[Any, Any]], global_step: Any, *, worker: int, workers: int, device: str
) -> SyncUpdate:
    """Adds lock-step training to the default graph.

    Args:
        optimiser: a TF1 optimiser.
        gradients: gradient and variable.
        global_step: counts updates.
        worker: this worker's index.
        workers: how many there are.
        device: of the queues.
    """
    import tensorflow.compat.v1 as v1

    handed_in, means = [], []
    for gradient, variable in gradients:
        with v1.device(variable.device):
            name = variable.op.name + "/gradients"
            if isinstance(gradient, v1.IndexedSlices):
                sparse = v1.SparseConditionalAccumulator(gradient.dtype, variable.shape, name, name="gradients")
                handed_in.append(sparse.apply_indexed_slices_grad(gradient, NEVER_STALE))
                means.append((sparse.take_indexed_slices_grad(workers), variable))
            else:
                dense = v1.ConditionalAccumulator(gradient.dtype, variable.shape, name, name="gradients")
                handed_in.append(dense.apply_grad(gradient, NEVER_STALE))
                means.append((dense.take_grad(workers), variable))
    applied = optimiser.apply_gradients(means, global_step=global_step)
    with v1.device(device):
        leaves = [
            v1.FIFOQueue(-1, v1.int64, shapes=(), name="leave", shared_name=f"driple_leave_{index}")
            for index in range(workers)
        ]
        with v1.control_dependencies([applied]):
            now = global_step.read_value()
            chief_op = v1.group(*(leave.enqueue(now) for leave in leaves), name="chief")
        with v1.control_dependencies(handed_in):
            worker_op = leaves[worker].dequeue(name="leave_given")
    return SyncUpdate(worker_op, chief_op)
