"""Runs one simulated job: from a training step, a setting and parameter files to the timelines of its tasks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from driple.contracts.errors import BadInput
from driple.contracts.formats.device import CPU as CPU_KIND
from driple.contracts.formats.device import DeviceFile
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.contracts.strategy import NCCL, STRATEGIES, WORKER
from driple.contracts.traffic_formulas import RING_STEPS, Traffic
from driple.pipeline.graph.public import TrainingStep
from driple.simulator.averaging_job import PairAveragingJob
from driple.simulator.collectives import AllReduceJob
from driple.simulator.host_model import HostModel
from driple.simulator.machines import Cluster
from driple.simulator.op_costs import op_costs, speed_factor
from driple.simulator.parameter_server import ParameterServerJob
from driple.simulator.segments import cut
from driple.simulator.timeline import Timeline, timeline
from driple.simulator.training_job import BUSY, CPU, MEMORY, PAIR, RX, TX, Job, Progress, meter

PIECES = 12
"""Segments of a step."""
MOST_LANES = 30
"""With more pairs of worker and server than this, a step has fewer segments: the number of events stays bounded."""
LEAST_PIECES = ((400, 4), (math.inf, 2))
"""Of a step, with up to so many pairs."""
STEPS = 8
"""Steps of each worker in a simulated run, the first one included, which differs from the others."""


@dataclass(frozen=True, eq=False)
class SimulatedJob:
    """What a simulated job did."""

    setting: Setting
    begun: tuple[NDArray[np.float64], ...]
    """By worker: the start of each step in seconds, and the end of the last one."""
    meters: Mapping[str, Timeline]
    """By task and quantity (training_job.py, `meter`)."""
    pairs: Mapping[tuple[str, str], Timeline]
    """Bytes by sender and receiver."""

    def of_task(self, task: str, what: str) -> Timeline:
        """A timeline of a task; flat if it used nothing."""
        return self.meters.get(meter(task, what)) or timeline(())

    @property
    def step_s(self) -> float:
        """The mean time of a step of the first worker, without its first step."""
        return float(np.mean(np.diff(self.begun[0][1:])))

    @property
    def step_traffic(self) -> Traffic:
        """Mean payload of a step between each pair of tasks that communicate, without the first step.

        A step is one of the worker of the pair; of two workers, one of the sender.
        """
        found: Traffic = {}
        for (source, target), moved in self.pairs.items():
            name = source if source.startswith(WORKER) else target
            times = self.begun[int(name.rpartition(":")[2])][1:]
            first, last = moved.until(times[[0, -1]])
            if last > first:
                found[source, target] = float(last - first) / (len(times) - 1)
        return found

    @property
    def end_s(self) -> float:
        return max(float(times[-1]) for times in self.begun)


def simulate(
    step: TrainingStep,
    workload: Workload,
    setting: Setting,
    together: Sequence[Sequence[str]],
    device: DeviceFile,
    host: HostModel,
    link_bytes_per_s: float | None,
    *,
    steps: int = STEPS,
    seed: int = 0,
    one_processor: bool = False,
    topology: str | None = None,
    backend: str | None = None,
    progress: Progress | None = None,
) -> SimulatedJob:
    """Simulates a job.

    Args:
        step: what a worker executes in a step.
        workload: its update mode, optimiser and strategy.
        setting: numbers of servers and workers.
        together: groups of tasks that share a machine.
        device: on which workers compute.
        host: what runtime and machine cost beside the ops.
        link_bytes_per_s: payload rate of a machine's link; None on one machine.
        steps: of each worker.
        seed: of the noise; equal seeds give equal jobs.
        one_processor: the machines are hosts of a lab and share processors.
        topology: of an all-reduce; default that of the workload.
        backend: what carries the tensors of an all-reduce; default that of the workload.
        progress: called often, with the share that is done.

    Raises:
        BadInput: the step has no traffic, or a parameter is missing or absurd.
    """
    lanes = setting.servers * setting.workers
    least = next(pieces for most, pieces in LEAST_PIECES if lanes <= most)
    pieces = max(least, PIECES * MOST_LANES // max(MOST_LANES, lanes))
    segments = cut(step, op_costs(step, device), pieces)
    machine = {task: number for number, group in enumerate(together) for task in group}
    host = host.at_speed(speed_factor(device))
    cluster = Cluster(machine, host, link_bytes_per_s, one_processor, gpu=device.kind != CPU_KIND)
    job: Job
    strategy = STRATEGIES[workload.strategy]
    if strategy.has_servers:
        if not step.pulls:
            raise BadInput("the graph names no parameter server: build it for a setting with servers")
        sync = workload.update == "sync"
        job = ParameterServerJob(
            cluster,
            segments,
            setting.servers,
            setting.workers,
            sync=sync,
            optimiser=workload.optimiser,
            steps=steps,
            seed=seed,
        )
    elif strategy.name == "pair_averaging":
        job = PairAveragingJob(cluster, segments, setting.workers, steps=steps, seed=seed)
    elif not strategy.has_topology:
        raise BadInput(f"strategy {strategy.name} cannot be simulated; measure it")
    else:
        carrier = workload.backend if backend is None else backend
        job = AllReduceJob(
            cluster,
            segments,
            setting.workers,
            topology=workload.topology if topology is None else topology,
            ring_step=RING_STEPS[carrier],
            nccl=carrier == NCCL,
            steps=steps,
            seed=seed,
        )
    job.run(progress)
    return _finished(job, setting)


def _finished(job: Job, setting: Setting) -> SimulatedJob:
    pieces = job.fluid.pieces
    names = [meter(task, what) for task in setting.tasks for what in (BUSY, MEMORY, TX, RX, CPU)]
    pairs = {(one, other): name for name in pieces for one, way, other in [name.partition(PAIR)] if way}
    return SimulatedJob(
        setting=setting,
        begun=tuple(np.array(times) for times in job.begun),
        meters={name: timeline(pieces[name]) for name in names if name in pieces},
        pairs={pair: timeline(pieces[name]) for pair, name in pairs.items()},
    )
