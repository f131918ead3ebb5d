"""Job: what all kinds of jobs share. Workers compute segments; meters record what each task uses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import numpy as np

from driple.simulator.fluid import Action, Flow, Fluid
from driple.simulator.machines import Cluster
from driple.simulator.segments import Segment

BUSY = "busy"
MEMORY = "memory"
TX = "tx"
RX = "rx"
CPU = "cpu"
"""What a task's meters count: seconds of computing and of memory access, bytes sent and received, processor seconds."""

PAIR = ">"
"""Between the sender and the receiver in the name of a meter of bytes."""

LEAST_STEPS = 3
"""Of every worker. An asynchronous worker beside its server may do many more."""
LEAST_S = 1e-15
"""Seconds per byte where nothing else limits a flow: it needs a speed, and sums of rates have 15 digits."""
COPY_S = 1e-12
"""Seconds per byte of any transfer: bytes between tasks of one machine pass through its memory."""

Progress = Callable[[float], None]


def meter(task: str, what: str) -> str:
    """The name of a task's meter."""
    return f"{task} {what}"


class Job(ABC):
    """A job of one kind of worker on a cluster. A subclass moves the tensors."""

    def __init__(self, cluster: Cluster, segments: list[Segment], workers: int, steps: int, seed: int) -> None:
        """Prepares `steps` steps of each worker; equal seeds give equal runs."""
        self.cluster = cluster
        self.host = cluster.host
        self.segments = segments
        self.workers = workers
        self.steps = steps
        self.fluid = Fluid()
        self.random = np.random.default_rng(seed)
        self.begun: list[list[float]] = [[] for _ in range(workers)]
        """By worker: the start of each step, and the end of the last one."""
        self._computing = [[self._compute_flow(k, one) for one in segments] for k in range(workers)]
        self._segments_done = 0

    def run(self, progress: Progress | None = None) -> None:
        """Runs the job until a worker has done all its steps, and every worker has done a few.

        `progress` is called after every event, with the share that is done: of computing, and of whole steps.
        """
        every = self.workers * self.steps

        def finished() -> bool:
            if progress is not None:
                steps = sum(max(len(times) - 1, 0) for times in self.begun)
                progress(min((self._segments_done / len(self.segments) + steps) / (2 * every), 0.99))
            return self._finished()

        self._begin_all()
        self.fluid.run(finished)

    @abstractmethod
    def _begin_all(self) -> None:
        """Begins the first step of every worker."""

    def _finished(self) -> bool:
        done = [len(times) - 1 for times in self.begun]
        return max(done) >= self.steps and min(done) >= min(self.steps, LEAST_STEPS)

    def begin_step(self, worker: int) -> bool:
        """Notes the start of a step; False if the job has ended. Asynchronous workers go on until it has."""
        self.begun[worker].append(self.fluid.now)
        return not self._finished()

    def compute(self, worker: int, ready: Callable[[int], bool], after: Callable[[int], None]) -> Action:
        """Computes the segments of a step one after the other.

        Args:
            worker: who computes.
            ready: whether a segment may start.
            after: called with the number of a segment when it has ended.

        Returns:
            A function to call when a segment may have become ready.
        """
        speed = float(np.exp(self.random.normal(0.0, self.host.noise)))
        state = {"next": 0, "free": True}

        def go() -> None:
            number = state["next"]
            if state["free"] and number < len(self.segments) and ready(number):
                state["free"] = False
                units = self.segments[number].wall_s * speed
                self.fluid.put(self._computing[worker][number], units, lambda: ended(number))

        def ended(number: int) -> None:
            state["next"], state["free"] = number + 1, True
            self._segments_done += 1
            after(number)
            go()

        return go

    def transfer_flow(
        self, source: str, target: str, own: Mapping[str, float], cpu_s: Mapping[str, float], *, direct: bool = False
    ) -> Flow:
        """A flow of bytes between two tasks. A thread moves them at each end, on at most one processor.

        Args:
            source: the task that sends.
            target: the task that receives.
            own: seconds per byte of resources of the tasks themselves.
            cpu_s: processor seconds per byte of each task.
            direct: from GPU to GPU. On one machine no interface and no connection counts these bytes.
        """
        used = {**own, **self.cluster.path(source, target, direct=direct), **self.cluster.processors(cpu_s)}
        unseen = direct and self.cluster.machine[source] == self.cluster.machine[target]
        counted = {meter(source, TX): 1.0, meter(target, RX): 1.0, pair_meter(source, target): 1.0}
        meters = {} if unseen else counted
        meters |= {meter(task, CPU): seconds for task, seconds in cpu_s.items()}
        return self.fluid.flow(used, meters, COPY_S, max(cpu_s.values()))

    def worker_flow(self, source: int, target: int) -> Flow:
        """A flow of bytes from one worker to another, through their hosts."""
        sender, receiver = f"worker:{source}", f"worker:{target}"
        own = {f"{sender} out": self.host.worker_s_per_byte, f"{receiver} in": self.host.worker_s_per_byte}
        cpu = self.host.cpu_worker_s_per_byte
        return self.transfer_flow(sender, receiver, own, {sender: cpu, receiver: cpu})

    def processor_flow(self, task: str, parallel: float = 1.0) -> Flow:
        """A flow of processor seconds of a task, on at most `parallel` processors at a time."""
        return self.fluid.flow(self.cluster.processors({task: 1.0}), {meter(task, CPU): 1.0}, limit_s=1 / parallel)

    def _compute_flow(self, worker: int, segment: Segment) -> Flow:
        task = f"worker:{worker}"
        if not self.cluster.gpu:
            return self.processor_flow(task, self.host.parallel)
        wall = max(segment.wall_s, 1e-12)
        shares = {meter(task, BUSY): segment.busy_s / wall, meter(task, MEMORY): segment.memory_s / wall}
        return self.fluid.flow({}, shares, limit_s=1.0)


def pair_meter(source: str, target: str) -> str:
    """The meter of the bytes from one task to another."""
    return f"{source}{PAIR}{target}"
