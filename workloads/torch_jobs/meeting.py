"""The start and the end of a torch job: forms the process group of the workers.

Worker 0 has the store of the process group, at a free port that it announces at its own address.
"""

from __future__ import annotations

import contextlib
import datetime
import os

import torch
import torch.distributed as dist

from driple.contracts.errors import RunFailed
from driple.contracts.run_spec import MAX_TIMEOUT_S
from driple.contracts.setting import CPU
from driple.contracts.strategy import NCCL
from driple.workloads.collectives.base import Link
from driple.workloads.runtime.gathering import Gathering
from driple.workloads.strategies.base import Task

_NO_LIMIT = datetime.timedelta(seconds=MAX_TIMEOUT_S)
"""The watchdog has the time limits: its messages name who is missing."""


class Meeting:
    """This worker's place among the workers of its job."""

    def __init__(self, task: Task) -> None:
        """Returns when all workers are there."""
        job = task.job
        self._task = task
        self.device = device_of(job.run.setting.device)
        self._gathering = Gathering(task)
        self.link = Link(self._gathering.host, self._gathering.interface, job.start_timeout_s)
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = self.link.interface
        if job.run.workload.backend == NCCL:
            torch.cuda.set_device(self.device)
        dist.init_process_group(
            job.run.workload.backend if job.run.workload.backend == NCCL else "gloo",
            store=self._store(),
            rank=task.index,
            world_size=job.run.setting.workers,
            timeout=_NO_LIMIT,
        )

    def begin(self) -> None:
        """Returns when every worker has called it and all tasks are sampled."""
        self._gathering.wait_for_samplers()
        dist.barrier()

    def end(self) -> None:
        """Waits for the other workers and ends the process."""
        self._gathering.ending()
        with contextlib.suppress(RuntimeError):  # the work is done, so lost workers do not matter
            dist.barrier()
        self._task.watchdog.leave(0)

    def _store(self) -> dist.TCPStore:
        if self._task.index == 0:
            store = dist.TCPStore(self.link.host, 0, is_master=True, wait_for_workers=False, timeout=_NO_LIMIT)
            self._gathering.announce(str(store.port))
            return store
        port = self._gathering.announced()
        return dist.TCPStore(self._gathering.first_host, int(port), timeout=_NO_LIMIT)


def device_of(setting_device: str) -> torch.device:
    """The device that a task of a setting trains on. Raises RunFailed if there is none."""
    if setting_device == CPU:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise RunFailed(f"{setting_device} is a GPU setting, and PyTorch finds no GPU on this host")
    return torch.device("cuda", 0)  # a task sees one GPU at most
