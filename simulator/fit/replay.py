"""Replays measured jobs in the simulator: the means over workers of what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driple.contracts.formats.device import DeviceFile
from driple.pipeline.graph.public import TrainingStep
from driple.simulator.fit.measured_jobs import STEP, TARGETS, MeasuredJob
from driple.simulator.host_model import HostModel
from driple.simulator.job_metrics import job_metrics
from driple.simulator.simulate import SimulatedJob, simulate

FIT_STEPS = 5
"""Steps of each worker where only the step time counts."""
STEPS = 12


@dataclass(frozen=True, eq=False)
class Replay:
    """A measured job and its training step."""

    job: MeasuredJob
    step: TrainingStep


def simulated(one: Replay, device: DeviceFile, host: HostModel, steps: int = STEPS, seed: int = 0) -> SimulatedJob:
    """The job in the simulator."""
    job = one.job
    return simulate(
        one.step,
        job.workload,
        job.setting,
        job.together,
        device,
        host,
        job.link_bytes_per_s,
        steps=steps,
        seed=seed,
        one_processor=job.lab,
    )


def step_times(replays: Sequence[Replay], device: DeviceFile, host: HostModel, steps: int = FIT_STEPS) -> list[float]:
    """Mean step times of all workers."""
    return [
        float(np.mean(np.concatenate([np.diff(times[1:]) for times in simulated(one, device, host, steps).begun])))
        for one in replays
    ]


def targets(one: Replay, device: DeviceFile, host: HostModel, steps: int = STEPS, seed: int = 0) -> dict[str, float]:
    """Means over workers of step time and burst metrics, as the sampler of the measurement would see them."""
    found = simulated(one, device, host, steps, seed)
    workers = [f"worker:{k}" for k in range(one.job.setting.workers)]
    rows = [job_metrics(found, task, device.kind, hz=one.job.hz) for task in workers]
    means = {}
    for name in TARGETS:
        known = [value for row in rows if (value := row.get(name)) is not None]
        if known:
            means[name] = float(np.mean(known))
    assert STEP in means
    return means
