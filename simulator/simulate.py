"""Runs one simulated job: from a training step, a setting and parameter files to the timelines of its tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from driple.contracts.errors import BadInput
from driple.contracts.formats.device import CPU as CPU_KIND
from driple.contracts.formats.device import DeviceFile
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.contracts.strategy import STRATEGIES
from driple.pipeline.graph.public import TrainingStep
from driple.simulator.collectives import AllReduceJob
from driple.simulator.host_model import HostModel
from driple.simulator.machines import Cluster
from driple.simulator.op_costs import op_costs, speed_factor
from driple.simulator.parameter_server import ParameterServerJob
from driple.simulator.segments import cut
from driple.simulator.timeline import Timeline, timeline
from driple.simulator.training_job import BUSY, CPU, MEMORY, RX, TX, Job, meter, pair_meter

PIECES = 12
"""Segments of a step."""
MOST_LANES = 30
"""With more pairs of worker and server than this, a step has fewer segments: the number of events stays bounded."""
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
    topology: str = "ring",
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
        topology: of an all-reduce.

    Raises:
        BadInput: the step has no traffic, or a parameter is missing or absurd.
    """
    pieces = max(4, PIECES * MOST_LANES // max(MOST_LANES, setting.servers * setting.workers))
    segments = cut(step, op_costs(step, device), pieces)
    machine = {task: number for number, group in enumerate(together) for task in group}
    host = host.at_speed(speed_factor(device))
    cluster = Cluster(machine, host, link_bytes_per_s, one_processor, gpu=device.kind != CPU_KIND)
    job: Job
    if STRATEGIES[workload.strategy].has_servers:
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
    else:
        job = AllReduceJob(cluster, segments, setting.workers, topology=topology, steps=steps, seed=seed)
    job.run()
    return _finished(job, setting)


def _finished(job: Job, setting: Setting) -> SimulatedJob:
    tasks = setting.tasks
    pieces = job.fluid.pieces
    names = [meter(task, what) for task in tasks for what in (BUSY, MEMORY, TX, RX, CPU)]
    pairs = {(one, other): pair_meter(one, other) for one in tasks for other in tasks}
    return SimulatedJob(
        setting=setting,
        begun=tuple(np.array(times) for times in job.begun),
        meters={name: timeline(pieces[name]) for name in names if name in pieces},
        pairs={pair: timeline(pieces[name]) for pair, name in pairs.items() if name in pieces},
    )
