"""The start and the end of a job without servers: finds the other workers, watches them, and ends the process."""

from __future__ import annotations

import time
from pathlib import Path

from driple.contracts.formats.task_files import LOST_PEER
from driple.workloads.runtime.own_interface import interface_of
from driple.workloads.runtime.presence import Presence, wait_for_text
from driple.workloads.runtime.watchdog import Peers, gave_up
from driple.workloads.strategies.base import Task

GO_S = 0.01
LINGER_S = 1.0
"""How long a worker stays after the last collective: the others may still fetch their part of it."""


class Gathering:
    """This worker among the workers of its job. From now on the loss of another one ends this process."""

    def __init__(self, task: Task) -> None:
        """Opens the port of the task."""
        job, me = task.job, f"{task.role}:{task.index}"
        self._task = task
        self._end_is_near = False
        address = job.task(me).address
        self._presence = Presence(address)
        peers = Peers(
            {each.task: each.address for each in job.tasks if each.task != me}, self._lost, job.step_timeout_s
        )
        self._missing = peers.missing
        task.watchdog.expect(
            job.start_timeout_s,
            lambda: gave_up(job, peers.missing(), "every worker answers, but the job did not start"),
        )
        self.host = host_of(address)
        self.interface = interface_of(self.host)

    @property
    def first_host(self) -> str:
        """The address of the first worker."""
        return host_of(self._task.job.task("worker:0").address)

    def announce(self, text: str) -> None:
        """Tells the other workers what they wait for; for the first worker."""
        self._presence.announce(text)

    def announced(self) -> str:
        """What the first worker announces, as soon as it does."""
        return wait_for_text(self._task.job.task("worker:0").address)

    def wait_for_all(self) -> None:
        """Returns when every worker has answered."""
        while self._missing():
            time.sleep(GO_S)

    def wait_for_samplers(self) -> None:
        """Returns when all tasks are sampled: a job starts faster than its samplers."""
        go_path = self._task.job.go_path
        while go_path is not None and not Path(go_path).exists():
            time.sleep(GO_S)

    def ending(self) -> None:
        """This worker has trained to the end: other workers may leave."""
        self._end_is_near = True
        self._task.watchdog.expect(
            self._task.job.step_timeout_s, "trained to the end, but the other workers do not answer"
        )

    def _lost(self, task: str) -> None:
        if not self._end_is_near:
            self._task.watchdog.leave(
                1, f"{task} went away before the job was done; its own last words say why", LOST_PEER
            )


def host_of(address: str) -> str:
    """The host of `host:port`."""
    return address.rpartition(":")[0].strip("[]")
