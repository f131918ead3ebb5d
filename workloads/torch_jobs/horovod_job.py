"""Synchronous training with Horovod in PyTorch: its optimiser averages gradients as backward makes them."""

from __future__ import annotations

import torch

from driple.workloads.runtime.horovod_world import HorovodWorld
from driple.workloads.strategies.base import Task
from driple.workloads.torch_graphs.torch_zoo_graph import write_graph
from driple.workloads.torch_jobs.lock_step import lock_step
from driple.workloads.torch_jobs.meeting import device_of
from driple.workloads.torch_jobs.training import Training, trainable_bytes


def run(task: Task) -> None:
    """Runs a worker to its end."""
    import horovod.torch as hvd

    write_graph(task)
    world = HorovodWorld(task, hvd, hvd.barrier)
    training = Training(task.job, task.index, device_of(task.job.run.setting.device))
    training.optimiser = hvd.DistributedOptimizer(
        training.optimiser, named_parameters=training.model.named_parameters()
    )
    world.begin()
    gradient_bytes = str(sum(trainable_bytes(training.model)))
    task.output.ready(torch=torch.__version__, gradient_bytes=gradient_bytes, **world.versions)

    def anyone(over: bool) -> bool:
        return bool(hvd.allreduce(torch.tensor(float(over)), op=hvd.Sum, name="votes") > 0)

    lock_step(task, training, training.model, anyone)
    world.end()
