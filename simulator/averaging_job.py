"""A job of pair averaging: in each step a worker takes the model of another one at random, and waits for no step of it.

A worker asks for the model at the start of its step. The model comes `latency_s` later, from the host of the other
worker, while the worker computes its gradients, `session_s` after the start of the step. When both are there, the next
step begins. What averaging and the update take is part of the ops of the step.
"""

from __future__ import annotations

from driple.contracts.errors import BadInput
from driple.simulator.machines import Cluster
from driple.simulator.segments import Segment
from driple.simulator.training_job import Job


class PairAveragingJob(Job):
    """A job without servers, whose workers are not in step."""

    def __init__(self, cluster: Cluster, segments: list[Segment], workers: int, *, steps: int, seed: int) -> None:
        """Prepares the flows between all pairs. Raises BadInput for a worker alone."""
        if workers < 2:
            raise BadInput("strategy pair_averaging needs at least 2 workers")
        super().__init__(cluster, segments, workers, steps, seed)
        self._size = sum(one.reduced.bytes for one in segments)
        pairs = [(source, target) for source in range(workers) for target in range(workers) if source != target]
        self._flows = {pair: self.worker_flow(*pair) for pair in pairs}

    def _begin_all(self) -> None:
        for worker in range(self.workers):
            self.fluid.after(0.0, lambda worker=worker: self._begin(worker))  # type: ignore[misc]

    def _begin(self, worker: int) -> None:
        if not self.begin_step(worker):
            return
        left = 1 + len(self.segments)

        def done() -> None:
            nonlocal left
            left -= 1
            if not left:
                self.fluid.after(0.0, lambda: self._begin(worker))

        peer = int(self.random.integers(self.workers - 1))
        peer += peer >= worker
        flow = self._flows[peer, worker]
        self.fluid.after(self.host.latency_s, lambda: self.fluid.put(flow, self._size, done))
        self.fluid.after(self.host.session_s, self.compute(worker, lambda number: True, lambda number: done()))
