"""An all-reduce job: workers compute, then add their gradients up in a ring or over trees.

With W workers and a gradient of n bytes:

    ring   every worker sends 2 (W - 1) / W * n to its neighbour, in 2 (W - 1) rounds at the same time
    trees  children send to their parent, level by level, then parents send down again; each tree has a share

contracts/traffic_formulas.py has the trees of a topology. Every round costs `latency_s` in addition, and every tensor
`collective_s` before the first round. The gradients of a segment are reduced when all workers have computed it, one
segment after the other, while computing goes on. The next step begins `barrier_s` after the last, and computes after
`session_s`.

NCCL sends from GPU to GPU: on one machine at `nccl_bytes_per_s`, past the channels and memory of the hosts. It reduces
all gradients after the backward pass, as the public measurements say, and adds no barrier. A worker alone has none
either.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from driple.contracts.errors import BadInput
from driple.contracts.strategy import CLIQUE, NCCL, RING, WORKER
from driple.contracts.traffic_formulas import ROOT, Tree, trees
from driple.simulator.fluid import Flow
from driple.simulator.machines import Cluster
from driple.simulator.segments import Moved, Segment
from driple.simulator.training_job import Job

Phase = list[tuple[int, int, float]]
"""Transfers at the same time: sender, receiver, share of the gradient's bytes."""


def phases(topology: str, machines: Sequence[int], ring_step: int = 1) -> list[Phase]:
    """The transfers of one reduction, for workers on these machines."""
    return ring(len(machines), ring_step) if topology == RING else forest(trees(topology, machines))


def ring(workers: int, step: int = 1) -> list[Phase]:
    """One phase: all rounds of a ring keep every link busy in the same way."""
    share = 2 * (workers - 1) / workers
    return [[(k, (k + step) % workers, share) for k in range(workers)]] if workers > 1 else []


def forest(every: Sequence[Tree]) -> list[Phase]:
    """Up the trees, deepest level first, and down again."""
    levels: dict[int, Phase] = {}
    for tree in every:
        for worker, parent in enumerate(tree):
            if parent != ROOT:
                levels.setdefault(_depth(tree, worker), []).append((worker, parent, 1 / len(every)))
    up = [levels[depth] for depth in sorted(levels, reverse=True)]
    return up + [[(parent, child, share) for child, parent, share in phase] for phase in reversed(up)]


def _depth(tree: Tree, worker: int) -> int:
    return 0 if tree[worker] == ROOT else 1 + _depth(tree, tree[worker])


def rounds(topology: str, machines: Sequence[int]) -> int:
    """Messages that follow one another in one reduction."""
    return 2 * (len(machines) - 1) if topology == RING else len(phases(topology, machines))


def pair_count(path: str, workers: int) -> int:
    """Pairs of workers that exchange tensors, whatever their machines. `path` is that of a workload without servers."""
    every = workers * (workers - 1) // 2
    return {RING: workers, CLIQUE: every, "pair_averaging": every}.get(path, workers - 1)


class AllReduceJob(Job):
    """A job without servers."""

    def __init__(
        self,
        cluster: Cluster,
        segments: list[Segment],
        workers: int,
        *,
        topology: str,
        steps: int,
        seed: int,
        ring_step: int = 1,
        nccl: bool = False,
    ) -> None:
        """Prepares the flows between workers. Raises BadInput if NCCL has no GPUs, or nothing says how fast it is."""
        super().__init__(cluster, _reduced_last(segments) if nccl else segments, workers, steps, seed)
        self._gpu_s = _gpu_to_gpu_s(cluster) if nccl else 0.0
        quiet = cluster.gpu and (nccl or workers == 1)
        self._session_s, self._barrier_s = (0.0, 0.0) if quiet else (self.host.session_s, self.host.barrier_s)
        machines = [cluster.machine[f"{WORKER}:{k}"] for k in range(workers)]
        self._phases = phases(topology, machines, ring_step)
        self._delay_s = rounds(topology, machines) / max(len(self._phases), 1) * self.host.latency_s
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
            self.fluid.after(self._session_s, self.compute(k, lambda number: True, self._after))

    def _after(self, number: int) -> None:
        self._computed[number] -= 1
        if not self._computed[number]:
            self._reducing.append(number)
            if len(self._reducing) == 1:
                self._reduce()

    def _reduce(self) -> None:
        reduced = self.segments[self._reducing[0]].reduced
        if reduced.bytes and self._phases:
            delay_s = reduced.tensors * self.host.collective_s
            self.fluid.after(delay_s, lambda: self._phase(0, reduced.bytes))
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
            self.fluid.after(self._barrier_s, self._begin)

    def _flow(self, source: int, target: int) -> Flow:
        if not self._gpu_s:
            return self.worker_flow(source, target)
        sender, receiver = f"worker:{source}", f"worker:{target}"
        own = {f"{sender} out": self._gpu_s, f"{receiver} in": self._gpu_s}
        return self.transfer_flow(sender, receiver, own, {sender: 0.0, receiver: 0.0}, direct=True)


def _reduced_last(segments: Sequence[Segment]) -> list[Segment]:
    """The segments, with all gradients reduced after the last."""
    total = Moved(sum(one.reduced.bytes for one in segments), sum(one.reduced.tensors for one in segments))
    return [replace(one, reduced=total if one is segments[-1] else Moved()) for one in segments]


def _gpu_to_gpu_s(cluster: Cluster) -> float:
    """Seconds per byte from a GPU to another one."""
    rate = cluster.host.nccl_bytes_per_s or cluster.host.pcie_bytes_per_s
    if not cluster.gpu:
        raise BadInput(f"backend {NCCL} needs GPUs; leave it out")
    if not rate:
        raise BadInput(
            f"backend {NCCL}: the host file has neither nccl_bytes_per_s nor pcie_bytes_per_s; add one, or run"
            " driple-calibrate on the GPU"
        )
    return 1 / rate
