"""Synchronous training: DistributedDataParallel, whose buckets go over the topology of the workload."""

from __future__ import annotations

import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from driple.contracts.run_spec import RunSpec
from driple.contracts.strategy import GLOO, NCCL, RING
from driple.contracts.traffic_formulas import machines_of
from driple.workloads.collectives.base import Link, Messages
from driple.workloads.collectives.registry import MESSAGES, collective
from driple.workloads.strategies.base import Task
from driple.workloads.torch_graphs.torch_zoo_graph import write_graph
from driple.workloads.torch_jobs.bucket_hook import BucketHook
from driple.workloads.torch_jobs.lock_step import lock_step
from driple.workloads.torch_jobs.meeting import Meeting
from driple.workloads.torch_jobs.training import Training, trainable_bytes


def run(task: Task) -> None:
    """Runs a worker to its end."""
    job = task.job
    write_graph(task)
    meeting = Meeting(task)
    training = Training(job, task.index, meeting.device)
    messages = messages_of(job.run, meeting.link)
    hook = hook_of(job.run, messages)
    model = data_parallel(training, hook)
    meeting.begin()
    versions = {"torch": torch.__version__, **(messages.versions if messages else {})}
    task.output.ready(
        **versions,
        backend=messages.name if messages else dist.get_backend(),
        topology=hook.collective.name if hook else RING,
        gradient_bytes=str(sum(trainable_bytes(training.model))),
    )
    try:
        lock_step(task, training, model, lambda over: _anyone(over, meeting.device))
    except Exception:
        if hook is not None and hook.failure is not None:
            raise hook.failure from None
        raise
    meeting.end()


def messages_of(run: RunSpec, link: Link) -> Messages | None:
    """What carries the gradients; None if the process group itself does, whose all-reduce is a ring."""
    workload = run.workload
    if workload.topology == RING and workload.backend in (GLOO, NCCL):
        return None
    return MESSAGES[workload.backend](link)


def hook_of(run: RunSpec, messages: Messages | None) -> BucketHook | None:
    """What takes the buckets of gradients over the topology of the workload; None if the process group does."""
    if messages is None:
        return None
    return BucketHook(collective(run.workload.topology, messages, machines_of(run)), run.setting.workers)


def data_parallel(training: Training, hook: BucketHook | None) -> DistributedDataParallel:
    """The model, such that backward leaves mean gradients of all workers. Workers must have the same weights."""
    with warnings.catch_warnings():
        # Later releases want another name for the option, which earlier ones do not know.
        warnings.simplefilter("ignore", FutureWarning)
        model = DistributedDataParallel(training.model, broadcast_buffers=False)
    if hook is not None:
        model.register_comm_hook(None, lambda _, bucket: hook(bucket))
    return model


def _anyone(over: bool, device: torch.device) -> bool:
    """Whether the clock of any worker says that it is over: all stop after the same step, or one would wait."""
    votes = torch.tensor(float(over), device=device)
    dist.all_reduce(votes)
    return bool(votes > 0)
