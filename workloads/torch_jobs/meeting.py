"""The start and the end of a torch job: finds the other workers, forms the process group, watches the others.

Worker 0 has the store of the process group, at a free port that it announces at its own address.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import time
from pathlib import Path

import torch
import torch.distributed as dist

from driple.contracts.errors import RunFailed
from driple.contracts.formats.task_files import LOST_PEER
from driple.contracts.run_spec import MAX_TIMEOUT_S
from driple.contracts.setting import CPU
from driple.contracts.strategy import NCCL
from driple.workloads.collectives.base import Link
from driple.workloads.runtime.own_interface import interface_of
from driple.workloads.runtime.presence import Presence, ask
from driple.workloads.runtime.watchdog import Peers, gave_up
from driple.workloads.strategies.base import Task
from driple.workloads.strategies.ps_worker import Ending

RETRY_S = 0.1
GO_S = 0.01
_NO_LIMIT = datetime.timedelta(seconds=MAX_TIMEOUT_S)
"""The watchdog has the time limits: its messages name who is missing."""


class Meeting:
    """This worker's place among the workers of its job."""

    def __init__(self, task: Task) -> None:
        """Returns when all workers are there."""
        job, me = task.job, f"{task.role}:{task.index}"
        self._task = task
        self._ending = Ending()
        self.device = _device(job.run.setting.device)
        address = job.task(me).address
        presence = Presence(address)
        others = {each.task: each.address for each in job.tasks if each.task != me}
        peers = Peers(others, self._lost, job.step_timeout_s)
        task.watchdog.expect(
            job.start_timeout_s,
            lambda: gave_up(job, peers.missing(), "every worker answers, but the job did not start"),
        )
        host = address.rpartition(":")[0].strip("[]")
        self.link = Link(host, interface_of(host))
        os.environ["GLOO_SOCKET_IFNAME"] = os.environ["NCCL_SOCKET_IFNAME"] = self.link.interface
        if job.run.workload.backend == NCCL:
            torch.cuda.set_device(self.device)
        store = self._store(presence, host)
        dist.init_process_group(
            job.run.workload.backend if job.run.workload.backend == NCCL else "gloo",
            store=store,
            rank=task.index,
            world_size=job.run.setting.workers,
            timeout=_NO_LIMIT,
        )

    def begin(self) -> None:
        """Returns when every worker has called it and all tasks are sampled: a job starts faster than its samplers."""
        go_path = self._task.job.go_path
        while go_path is not None and not Path(go_path).exists():
            time.sleep(GO_S)
        dist.barrier()

    def end(self) -> None:
        """Waits for the other workers and ends the process."""
        watchdog = self._task.watchdog
        self._ending.near = True
        watchdog.expect(self._task.job.step_timeout_s, "trained to the end, but the other workers do not answer")
        with contextlib.suppress(RuntimeError):  # the work is done, so lost workers do not matter
            dist.barrier()
        watchdog.leave(0)

    def _store(self, presence: Presence, host: str) -> dist.TCPStore:
        if self._task.index == 0:
            store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=_NO_LIMIT)
            presence.announce(str(store.port))
            return store
        first = self._task.job.task("worker:0").address
        while not (port := ask(first)):
            time.sleep(RETRY_S)
        return dist.TCPStore(first.rpartition(":")[0].strip("[]"), int(port), timeout=_NO_LIMIT)

    def _lost(self, task: str) -> None:
        if not self._ending.near:
            self._task.watchdog.leave(
                1, f"{task} went away before the job was done; its own last words say why", LOST_PEER
            )


def _device(setting_device: str) -> torch.device:
    if setting_device == CPU:
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise RunFailed(f"{setting_device} is a GPU setting, and PyTorch finds no GPU on this host")
    return torch.device("cuda", 0)  # a task sees one GPU at most
