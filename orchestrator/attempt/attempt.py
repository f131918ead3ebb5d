"""One attempt at a run, from connected hosts to the end of its last task: prepare, start, watch, stop.

Every wait has a time limit. However it ends, `stop` leaves no process on a host that can be reached.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from driple.contracts.errors import RunFailed
from driple.contracts.manifest import CONTAINER, WARM, ClockFit
from driple.contracts.protocol import requests
from driple.contracts.run_spec import JobSpec
from driple.contracts.strategy import FRAMEWORKS
from driple.orchestrator.attempt.data_network import LinkState
from driple.orchestrator.attempt.failure import AttemptError, FailureOrigin
from driple.orchestrator.attempt.monitor import Listener, try_ask
from driple.orchestrator.attempt.packet_capture import HostCapture, start_captures, stop_captures
from driple.orchestrator.attempt.prepare import (
    Request,
    give_shares,
    have_shares,
    let_go,
    prepare,
    python_versions,
)
from driple.orchestrator.attempt.task_command import WARM_READY_S, ForkServer
from driple.orchestrator.attempt.task_start import BACKSTOP_S, Starter
from driple.orchestrator.attempt.task_state import TaskState
from driple.orchestrator.hosts.agent_client import RUNS, AgentClient

log = logging.getLogger(__name__)

TERM_S = 5.0  # maximum time between SIGTERM and SIGKILL of a task


@dataclass(frozen=True)
class FinishedAttempt:
    """A successful attempt. Its files are still on the hosts."""

    job: JobSpec
    tasks: Sequence[TaskState]
    clocks: dict[str, ClockFit]
    links: LinkState
    versions: dict[str, str]
    folders: dict[str, str]  # folder of the attempt, by host
    captures: Sequence[HostCapture] = ()  # of packets, one for each host


class Attempt:
    """One attempt. `go` runs it; `interrupt` may be called from another thread."""

    def __init__(self, request: Request, on_progress: Callable[[str], None] = lambda text: None) -> None:
        token = uuid.uuid4().hex[:8]
        self.clients = dict(request.clients)
        self.folders = {
            name: f"{client.facts.work}/{RUNS}/{request.run_id}.{token}" for name, client in self.clients.items()
        }
        self.states: dict[str, TaskState] = {}
        self._captures: list[HostCapture] = []
        self._request = request
        self._listener = Listener(request.spec, on_progress)
        self._starter = Starter(request, token)
        self._limit_at = time.monotonic() + request.limit_s

    def interrupt(self) -> None:
        """Makes `go` raise StoppedError soon."""
        self._listener.interrupt()

    def go(self) -> FinishedAttempt:
        """Runs up to the end of the last task. After a RunFailed, no process of the attempt is left."""
        self._listener.attach(self.clients)
        self._listener.on_started = self._starter.started
        try:
            return self._go()
        except BaseException:  # also KeyboardInterrupt: no process may be left
            self.stop()
            raise
        finally:
            for state in self.states.values():
                try_ask(state.client, requests.Unfollow(name=state.place.process))
            self._listener.detach()

    def _go(self) -> FinishedAttempt:
        links = self._request.links.apply(self._request.spec, self.clients)
        job, self.states = prepare(self._request, self.folders)
        self._listener.states = self.states
        self._warm_up()
        before = {name: client.probe_clock() for name, client in self.clients.items()}
        self._captures = start_captures(self._request, self.folders, self._listener)
        self._start(job)
        self._watch()
        self._finish()
        stop_captures(self._captures, self._listener, self._request.timeouts.stop_s)
        clocks = {name: ClockFit(before[name], client.probe_clock()) for name, client in self.clients.items()}
        tasks = list(self.states.values())
        return FinishedAttempt(job, tasks, clocks, links, self._versions(), self.folders, self._captures)

    def _warm_up(self) -> None:
        """Starts a fork server of the framework on every host that needs one, and waits until it is ready."""
        framework = FRAMEWORKS[self._request.spec.workload.framework]
        wanted: dict[str, ForkServer] = {}
        for state in self.states.values():
            if state.way == WARM:
                state.fork_server = wanted[state.client.name] = self._fork_server(state.client, framework.name)
        self._listener.until(
            lambda: all(server.ready or server.failure for server in wanted.values()),
            WARM_READY_S,
            lambda: (
                f"{framework.title} was not loaded in time on "
                + ", ".join(name for name, server in wanted.items() if not server.ready)
            ),
        )
        for name, server in wanted.items():
            if server.failure:
                words = self._listener.tail(self.clients[name], server.log)
                said = f"{server.failure}: {words[-1]}" if words else server.failure
                raise AttemptError(said, FailureOrigin(name, command="the fork server", words=words))

    def _fork_server(self, client: AgentClient, framework: str) -> ForkServer:
        """That of the host, which is started unless it runs."""
        server: ForkServer | None = client.fork_servers.get(framework)
        if server is None or server.failure:
            server = client.fork_servers[framework] = ForkServer(
                client, self._request.hosts[client.name].python, framework
            )
            server.begin()
        return server

    def _start(self, job: JobSpec) -> None:
        """Starts servers, and workers once the servers are sampled: a quick job could end before its samplers start."""
        servers = [state for state in self.states.values() if not state.is_worker]
        workers = [state for state in self.states.values() if state.is_worker]
        for states in (servers, workers):
            self._starter.start(states, job)
            self._listener.until(
                lambda states=states: all(state.sampler_ready or state.over for state in states),  # type: ignore[misc]
                self._request.timeouts.start_s,
                lambda states=states: (
                    "not started or not sampled: "  # type: ignore[misc]
                    + ", ".join(state.where for state in states if not state.sampler_ready)
                ),
            )
        let_go(self.clients, self.folders)
        if have_shares(self._request):
            self._listener.until(
                lambda: all(state.ready or state.over for state in workers),
                self._request.timeouts.start_s + BACKSTOP_S,
                lambda: "not ready: " + ", ".join(state.where for state in workers if not state.ready),
            )
            give_shares(self._request, self.states.values(), self.folders)

    def _watch(self) -> None:
        timeouts = self._request.timeouts

        def done() -> bool:
            now = time.monotonic()
            for state in self.states.values():
                patience = (timeouts.step_s if state.steps else timeouts.start_s) + BACKSTOP_S
                if state.is_worker and not state.over and now - state.moved > patience:
                    stuck = f"{state.where} made no progress for {patience:g} s after step {state.steps}"
                    raise self._listener.failed(state, stuck)
            return all(state.over for state in self.states.values() if state.is_worker)

        left = self._limit_at - time.monotonic()
        self._listener.until(done, left, lambda: f"the run took more than {self._request.limit_s:g} s")

    def _finish(self) -> None:
        """Waits for servers and samplers after the last worker, and stops those that do not end."""
        grace = self._request.timeouts.stop_s
        servers = [state for state in self.states.values() if not state.over]
        self._listener.settle(lambda: all(state.over for state in servers), grace)
        late = [state for state in servers if not state.over]
        if late:  # not a failure: the training was successful
            log.warning("stopping %s: it did not end by itself", ", ".join(state.where for state in late))
            self._stop_tasks(late)
        self._listener.until(
            lambda: all(state.sampler_over for state in self.states.values()),
            grace,
            lambda: (
                "samplers did not end: "
                + ", ".join(state.where for state in self.states.values() if not state.sampler_over)
            ),
        )
        measurement = self._request.spec.measurement
        least = measurement.warmup_steps + measurement.least_steps
        for state in self.states.values():
            if not state.summary:
                hint = "a run of a second can end before its sampler starts: increase the steps"
                why = f"the sampler of {state.where} left no summary ({hint})"
                raise self._listener.failed(state, why, sampler=True)
            steps = state.steps if state.finished is None else state.finished.steps
            if state.is_worker and steps < least:
                raise self._listener.failed(state, f"{state.where} did {state.steps} steps, expected {least}")

    def stop(self) -> None:
        """Ends every process of the attempt on hosts that answer. Safe to call twice."""
        self._stop_tasks(list(self.states.values()))
        for state in self.states.values():
            try_ask(state.client, requests.Stop(names=(state.place.sampler,), grace_s=2.0), timeout_s=15.0)
        for capture in self._captures:
            try_ask(capture.client, requests.Stop(names=(capture.process,), grace_s=2.0), timeout_s=15.0)

    def remove_folders(self) -> None:
        for name, client in self.clients.items():
            try_ask(client, requests.Remove(path=self.folders[name]), timeout_s=60.0)

    def _stop_tasks(self, states: Iterable[TaskState]) -> None:
        """Ends tasks by SIGTERM, then SIGKILL: forked tasks through their fork server, containers also by name."""
        grace = self._request.timeouts.stop_s
        running = [state for state in states if not state.over and state.pid and state.client.lost is None]
        waiting = []
        for state in running:
            try:
                if state.fork_server is not None and state.pid is not None:
                    state.fork_server.stop(state.pid)
                else:
                    stop = requests.Stop(names=(state.place.process,), grace_s=min(grace, TERM_S))
                    waiting.append(state.client.post(stop))
            except RunFailed as error:
                log.debug("stopping %s: %s", state.where, error)
        for answer in waiting:
            try:
                answer(grace + BACKSTOP_S)
            except RunFailed as error:
                log.debug("stopping: %s", error)
        self._stop_warm_tasks([state for state in running if state.fork_server], min(grace, 2 * TERM_S))
        for state in running:
            if state.way == CONTAINER:
                docker = self._request.hosts[state.client.name].docker
                remove = (docker, "rm", "--force", self._starter.container_name(state))
                try_ask(state.client, requests.Run(argv=remove, limit_s=20.0), timeout_s=30.0)

    def _stop_warm_tasks(self, states: Sequence[TaskState], seconds: float) -> None:
        """Waits for forked tasks; ends the fork server of a task that does not end."""
        self._listener.settle(lambda: all(state.over or state.client.lost for state in states), seconds)
        for state in states:
            server = state.fork_server
            if not state.over and state.client.lost is None and server is not None:
                try_ask(state.client, requests.Stop(names=(server.process,), grace_s=2.0), timeout_s=20.0)
                state.client.fork_servers.pop(server.framework, None)

    def _versions(self) -> dict[str, str]:
        """Software versions of the tasks: by package where all hosts agree, else by `host/package`."""
        by_host = {name: python_versions(client.info) for name, client in self.clients.items()}
        versions: dict[str, str] = {}
        for package in sorted({package for found in by_host.values() for package in found}):
            found = {name: str(has[package]) for name, has in by_host.items() if has.get(package)}
            if len(set(found.values())) == 1 and len(found) == len(by_host):
                versions[package] = next(iter(found.values()))
            else:
                versions |= {f"{name}/{package}": version for name, version in found.items()}
        return versions
