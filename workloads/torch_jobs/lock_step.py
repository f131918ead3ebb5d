"""The steps of a worker that is in step with all others."""

from __future__ import annotations

import time
from collections.abc import Callable

import torch

from driple.workloads.strategies.base import Task
from driple.workloads.strategies.ps_worker import Pace
from driple.workloads.torch_jobs.torch_inputs import Batch
from driple.workloads.torch_jobs.training import Training


def lock_step(
    task: Task, training: Training, forward: Callable[[Batch], torch.Tensor], anyone: Callable[[bool], bool]
) -> None:
    """Trains as long as the job says. `anyone` says whether the clock of any worker says that it is over.

    All stop after the same step, or one would wait for ever.
    """
    job = task.job
    pace, done, timed = Pace(job.run.measurement), 0, job.run.measurement.duration_s is not None
    while timed or not pace.over(done, time.monotonic()):
        task.watchdog.expect(job.step_timeout_s, f"step {done} took more than {job.step_timeout_s:g} s; it is stuck")
        over = timed and pace.over(done, time.monotonic())
        begin = time.monotonic_ns()
        learned = training.backward(forward)
        training.optimiser.step()
        over = timed and anyone(over)
        task.output.step(done, done + 1, begin, time.monotonic_ns(), learned.loss, learned.accuracy)
        done += 1
        if over:
            break
