"""Starts Horovod in the workers of a job, without horovodrun.

Worker 0 has what Horovod needs to form its world: its own rendezvous server for gloo, the process manager of MPICH for
MPI. It announces the place at its own address. Each worker is a Horovod host of its own.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Callable
from typing import Any

from driple.contracts.errors import RunFailed
from driple.contracts.run_spec import MAX_TIMEOUT_S
from driple.contracts.strategy import BACKENDS, HOROVOD_GLOO, HOROVOD_MPI
from driple.workloads.runtime.gathering import LINGER_S, Gathering
from driple.workloads.strategies.base import Task

_CARRIERS = {HOROVOD_GLOO: "gloo", HOROVOD_MPI: "mpi"}


class HorovodWorld:
    """This worker's place in the world of Horovod."""

    def __init__(self, task: Task, hvd: Any, meet: Callable[[], object]) -> None:
        """Returns when all workers are there.

        Args:
            task: this worker.
            hvd: Horovod's module for the framework.
            meet: returns when every worker has called it.
        """
        import horovod

        self._task, self._meet = task, meet
        workload = task.job.run.workload
        carrier, workers = _CARRIERS[workload.backend], task.job.run.setting.workers
        if not getattr(hvd, f"{carrier}_built")():
            raise RunFailed(
                f"Horovod of this host was built without {carrier}; build it as in {BACKENDS[workload.backend].recipe}"
            )
        self._gathering = Gathering(task)
        self._process_manager: subprocess.Popen[str] | None = None
        if task.index == 0:
            self._gathering.announce(self._serve_mpi(workers) if carrier == "mpi" else _serve_gloo(workers))
        where = self._gathering.announced()
        self._gathering.wait_for_all()  # MPICH crashes if its process manager ends while it waits for the others
        os.environ |= {
            **{"HOROVOD_CONTROLLER": carrier, "HOROVOD_CPU_OPERATIONS": carrier},
            "HOROVOD_STALL_CHECK_DISABLE": "1",  # the watchdog has the time limits
        }
        if carrier == "mpi":
            from driple.workloads.collectives.mpi_variables import set_variables

            set_variables(where, task.index, self._gathering.interface)
        else:
            self._set_gloo_variables(int(where), workers)
        hvd.init()
        if hvd.size() != workers:
            raise RunFailed(f"Horovod formed a world of {hvd.size()} workers instead of {workers}")
        self.versions = {"horovod": horovod.__version__, "backend": workload.backend, "topology": workload.topology}

    def begin(self) -> None:
        """Returns when every worker has called it and all tasks are sampled."""
        self._gathering.wait_for_samplers()
        self._meet()

    def end(self) -> None:
        """Waits for the other workers and ends the process."""
        self._gathering.ending()
        with contextlib.suppress(Exception):  # the work is done, so lost workers do not matter
            self._meet()
        time.sleep(LINGER_S)
        self._task.watchdog.leave(0)

    def _serve_mpi(self, workers: int) -> str:
        from driple.workloads.collectives import process_manager

        limit_s = self._task.job.start_timeout_s
        where, self._process_manager = process_manager.start(self._gathering.host, workers, limit_s)
        return where

    def _set_gloo_variables(self, port: int, workers: int) -> None:
        rank = str(self._task.index)
        os.environ |= {
            **{"HOROVOD_RANK": rank, "HOROVOD_SIZE": str(workers), "HOROVOD_HOSTNAME": _host(self._task.index)},
            **{"HOROVOD_LOCAL_RANK": "0", "HOROVOD_LOCAL_SIZE": "1"},
            **{"HOROVOD_CROSS_RANK": rank, "HOROVOD_CROSS_SIZE": str(workers)},
            "HOROVOD_GLOO_RENDEZVOUS_ADDR": self._gathering.first_host,
            "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
            "HOROVOD_GLOO_IFACE": self._gathering.interface,
            "HOROVOD_GLOO_TIMEOUT_SECONDS": str(int(MAX_TIMEOUT_S)),
        }


def _serve_gloo(workers: int) -> str:
    """Starts Horovod's rendezvous server in a thread; returns its port."""
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
    from horovod.runner.http.http_server import RendezvousServer

    server = RendezvousServer()
    port = server.start()
    hosts = ",".join(f"{_host(worker)}:1" for worker in range(workers))
    server.init(get_host_assignments(parse_hosts(hosts), workers))
    return str(port)


def _host(worker: int) -> str:
    return f"worker-{worker}"
