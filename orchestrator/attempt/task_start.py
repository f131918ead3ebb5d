"""Starts the tasks of a run and their samplers."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterable

from driple.contracts.formats.task_files import STDERR_LOG
from driple.contracts.json_values import to_plain
from driple.contracts.manifest import PYTHON
from driple.contracts.protocol import requests
from driple.contracts.protocol.sampler_spec import SamplerSpec
from driple.contracts.run_spec import JobSpec
from driple.orchestrator.attempt.data_network import FLOWS
from driple.orchestrator.attempt.prepare import Request
from driple.orchestrator.attempt.task_command import container_command, start_python
from driple.orchestrator.attempt.task_state import TaskState

BACKSTOP_S = 15.0  # margin of the controller over the time limits of a task, whose own message is more specific
FLOWS_HZ = 5.0
TRAFFIC_FLOWS_HZ = 100.0  # maximum rate of reading flows if the traffic of a task is the sum of its flows


class Starter:
    """Starts the tasks of one attempt."""

    def __init__(self, request: Request, token: str) -> None:
        self._request = request
        self._token = token

    def start(self, states: Iterable[TaskState], job: JobSpec) -> None:
        """Starts every task. Forked tasks report their PID later; see `started`."""
        for state in states:
            state.moved = time.monotonic()
            if state.fork_server is not None:
                state.fork_server.run(state.place)
            elif state.way == PYTHON:
                python = self._request.hosts[state.client.name].python
                limit_s = self._request.limit_s + BACKSTOP_S
                self.started(state, start_python(state.client, state.place, python, limit_s))
            else:
                self._start_container(state, job)

    def started(self, state: TaskState, pid: int) -> None:
        """Starts the sampler of a task whose PID is known."""
        state.pid = pid
        write = state.client.post(self._write(state, pid=pid))
        sampler = requests.Start(
            name=state.place.sampler,
            argv=(*state.client.agent_command, "--spec", state.place.sampler_spec),
            stderr=state.place.sampler_log,
            talk=True,
            limit_s=self._request.limit_s + 2 * BACKSTOP_S,  # the limit in its spec comes first
        )
        start = state.client.post(sampler)
        follow = state.client.post(requests.Follow(name=state.place.process, folder=state.place.out, pid=pid))
        write()
        state.sampler_pid = start().pid
        follow()

    def container_name(self, state: TaskState) -> str:
        return f"driple-{self._token}-{state.task.replace(':', '-')}"

    def _start_container(self, state: TaskState, job: JobSpec) -> None:
        argv = container_command(
            self._request.hosts[state.client.name],
            state.place,
            name=self.container_name(state),
            address=job.task(state.task).address,
            gpu=state.gpu,
            agent=state.client.agent_path,
            user=f"{state.client.facts.uid}:{state.client.facts.gid}",
        )
        state.client.ask(self._write(state, command=tuple(state.place.command("python3", lifeline=False))))
        state.command = shlex.join(argv)
        start = requests.Start(
            name=state.place.process,
            argv=tuple(argv),
            stderr=f"{state.place.out}/{STDERR_LOG}",
            talk=True,
            limit_s=self._request.limit_s + BACKSTOP_S,
        )
        state.pid = state.client.ask(start).pid
        state.client.ask(requests.Follow(name=state.place.process, folder=state.place.out, pid=state.pid))

    def _write(self, state: TaskState, *, pid: int | None = None, command: tuple[str, ...] = ()) -> requests.Write:
        hz = self._request.spec.measurement.sampling_hz
        by_flows = state.traffic_source == FLOWS
        spec = SamplerSpec(
            out=state.place.trace,
            hz=hz,
            limit_s=self._request.limit_s + BACKSTOP_S,
            flows_hz=min(hz, TRAFFIC_FLOWS_HZ if by_flows else FLOWS_HZ),
            watch_stdin=True,
            labels={"run": self._request.run_id, "task": state.task, "attempt": self._token},
            nic=() if by_flows else (state.traffic_source.partition(":")[2],),
            gpu=() if state.gpu is None else (str(state.gpu),),
            pid=pid,
            command=command,
        )
        text = json.dumps(to_plain(spec, omit_defaults=True))
        return requests.Write(path=state.place.sampler_spec, text=text)
