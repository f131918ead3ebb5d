"""An all-reduce job: workers compute, then add their gradients up in a ring, a tree or a star.

With W workers and a gradient of n bytes:

    ring   every worker sends 2 (W - 1) / W * n to its neighbour, in 2 (W - 1) rounds at the same time
    tree   children send n to their parent, level by level up the binary tree, then parents send n down again
    star   all others send n to the first worker, which then sends n to each of them

Every round costs `latency_s` in addition. The gradients of a segment are reduced when all workers have computed it, one
segment after the other, while computing goes on. The next step begins `barrier_s` after the last.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from driple.simulator.fluid import Flow
from driple.simulator.machines import Cluster
from driple.simulator.segments import Segment
from driple.simulator.training_job import LEAST_S, Job

Phase = list[tuple[int, int, float]]
"""Transfers at the same time: sender, receiver, share of the gradient's bytes."""


def ring(workers: int) -> list[Phase]:
    """One phase: all rounds of a ring keep every link busy in the same way."""
    share = 2 * (workers - 1) / workers
    return [[(k, (k + 1) % workers, share) for k in range(workers)]] if workers > 1 else []


def tree(workers: int) -> list[Phase]:
    """Up a binary tree, deepest level first, and down again."""
    levels: dict[int, Phase] = {}
    for k in range(1, workers):
        levels.setdefault((k + 1).bit_length(), []).append((k, (k - 1) // 2, 1.0))
    up = [levels[depth] for depth in sorted(levels, reverse=True)]
    return up + [[(parent, child, 1.0) for child, parent, _ in phase] for phase in reversed(up)]


def star(workers: int) -> list[Phase]:
    """To the first worker and back."""
    inward = [(k, 0, 1.0) for k in range(1, workers)]
    return [inward, [(0, k, 1.0) for k, _, _ in inward]] if inward else []


TOPOLOGIES: dict[str, Callable[[int], list[Phase]]] = {"ring": ring, "tree": tree, "star": star}


def rounds(topology: str, workers: int) -> int:
    """Messages that follow one another in one reduction."""
    return 2 * (workers - 1) if topology == "ring" else len(TOPOLOGIES[topology](workers))


class AllReduceJob(Job):
    """A job without servers."""

    def __init__(
        self, cluster: Cluster, segments: list[Segment], workers: int, *, topology: str, steps: int, seed: int
    ) -> None:
        """Prepares the flows between workers."""
        super().__init__(cluster, segments, workers, steps, seed)
        self._phases = TOPOLOGIES[topology](workers)
        self._delay_s = rounds(topology, workers) / max(len(self._phases), 1) * self.host.latency_s
        self._flows: dict[tuple[int, int], Flow] = {}
        for phase in self._phases:
            for source, target, _ in phase:
                self._flows.setdefault((source, target), self._flow(source, target))
        self._reducing: deque[int] = deque()
        self._computed = [0] * len(segments)
        self._left = 0

    def _begin_all(self) -> None:
        self.fluid.after(0.0, self._begin)

    def _begin(self) -> None:
        going = [self.begin_step(k) for k in range(self.workers)]  # all of them, even after the first False
        if not all(going):
            return
        self._computed = [self.workers] * len(self.segments)
        self._left = len(self.segments)
        for k in range(self.workers):
            self.fluid.after(self.host.session_s, self.compute(k, lambda number: True, self._after))

    def _after(self, number: int) -> None:
        self._computed[number] -= 1
        if not self._computed[number]:
            self._reducing.append(number)
            if len(self._reducing) == 1:
                self._reduce()

    def _reduce(self) -> None:
        size = self.segments[self._reducing[0]].reduced.bytes
        if size:
            self._phase(0, size)
        else:
            self.fluid.after(0.0, self._reduced)

    def _phase(self, number: int, size: float) -> None:
        if number == len(self._phases):
            self._reduced()
            return
        left = len(self._phases[number])

        def done() -> None:
            nonlocal left
            left -= 1
            if not left:
                self.fluid.after(self._delay_s, lambda: self._phase(number + 1, size))

        for source, target, share in self._phases[number]:
            self.fluid.put(self._flows[source, target], size * share, done)

    def _reduced(self) -> None:
        self._reducing.popleft()
        self._left -= 1
        if self._reducing:
            self._reduce()
        elif not self._left:
            self.fluid.after(self.host.barrier_s, self._begin)

    def _flow(self, source: int, target: int) -> Flow:
        sender, receiver = f"worker:{source}", f"worker:{target}"
        own = {f"{sender} out": self.host.worker_s_per_byte, f"{receiver} in": self.host.worker_s_per_byte}
        cpu = self.host.cpu_worker_s_per_byte
        return self.transfer_flow(sender, receiver, own, {sender: cpu, receiver: cpu}, limit_s=LEAST_S)
