"""Handles the events of the hosts in the thread of an attempt, and finds the cause of a failure.

The first failure is often a consequence: a worker misses a server whose own error arrives a moment later. So after a
failure, events are handled for a while longer, and the most specific failure is reported.
"""

from __future__ import annotations

import json
import logging
import queue
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from driple.contracts.errors import BadInput, HostError, RunFailed
from driple.contracts.formats.task_files import LOST_PEER, STDERR_LOG
from driple.contracts.manifest import CONTAINER
from driple.contracts.protocol import events, requests
from driple.contracts.protocol.forkserver_messages import Ended, Started
from driple.contracts.protocol.message import Message
from driple.contracts.protocol.sampler_lines import READY, SamplerSummary
from driple.contracts.run_spec import RunSpec
from driple.orchestrator.attempt.failure import AttemptError, FailureOrigin, StoppedError, exit_text
from driple.orchestrator.attempt.task_command import ForkServer, fork_server_message
from driple.orchestrator.attempt.task_state import TaskState
from driple.orchestrator.hosts.agent_client import AgentClient, Clients, Event

log = logging.getLogger(__name__)

A = TypeVar("A", bound=Message)

OTHERS_S = 3.0
TURN_S = 1.0
FULL_BYTES = 1024 * 1024
NOISE = re.compile(r"^[IWEF]\d{4} |cuInit|All log messages before absl")
"""Lines that TensorFlow logs on every machine without a GPU."""


class Listener:
    """Receives the events of one attempt."""

    def __init__(self, spec: RunSpec, on_progress: Callable[[str], None]) -> None:
        self.states: dict[str, TaskState] = {}
        self.others: dict[str, Callable[[events.ProcessEvent], None]] = {}
        """Processes of the attempt that are no tasks, with what takes their events, by name."""
        self.on_started: Callable[[TaskState, int], None] = lambda state, pid: None
        self._spec = spec
        self._on_progress = on_progress
        self._inbox: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._interrupted = False
        self._failure: AttemptError | None = None
        self._clients: dict[str, AgentClient] = {}

    def attach(self, clients: Clients) -> None:
        self._clients = dict(clients)
        for client in clients.values():
            _route(client, self._inbox.put)

    def detach(self) -> None:
        for client in self._clients.values():
            _route(client, lambda event: None)

    def interrupt(self) -> None:
        """Makes `until` raise StoppedError. Thread-safe."""
        self._interrupted = True
        self._inbox.put(None)

    def until(self, done: Callable[[], bool], seconds: float, complaint: Callable[[], str]) -> None:
        """Handles events until `done`.

        Raises AttemptError if a process failed or with `complaint` after the time limit, HostError, or StoppedError.
        """
        deadline = time.monotonic() + seconds
        while not done():
            left = deadline - time.monotonic()
            if left <= 0:
                raise AttemptError(complaint())
            self.take(min(left, TURN_S))
            if self._interrupted:
                raise StoppedError("stopped by the user")
            if self._failure is not None:
                self._hear_the_others()
                raise self._with_words(self._failure)

    def settle(self, done: Callable[[], bool], seconds: float) -> None:
        """As `until`, while stopping: ignores failures."""
        deadline = time.monotonic() + seconds
        while not done() and (left := deadline - time.monotonic()) > 0:
            try:
                self.take(min(left, TURN_S))
            except RunFailed as error:
                log.debug("while stopping: %s", error)

    def take(self, seconds: float) -> None:
        try:
            event = self._inbox.get(timeout=seconds)
        except queue.Empty:
            return
        if event is not None:
            self._on(event)

    def failed(self, state: TaskState, reason: str, *, sampler: bool = False) -> AttemptError:
        code = state.sampler_exit if sampler else state.exit_code
        return AttemptError(reason, FailureOrigin(state.client.name, state.task, state.command, code, sampler=sampler))

    def tail(self, client: AgentClient, path: str) -> tuple[str, ...]:
        answer = try_ask(client, requests.Tail(path=path, lines=10))
        return () if answer is None else answer.lines

    def _on(self, event: Event) -> None:
        if isinstance(event.value, HostError):
            raise event.value
        name = event.value.name
        server = _fork_server(self._clients.get(event.host), event)
        if server is not None:
            self._on_fork_server(server, event)
            return
        if name in self.others:
            self.others[name](event.value)
        for state in self.states.values():
            if name == state.place.process:
                self._on_task(state, event.value)
            elif name == state.place.sampler:
                self._on_sampler(state, event.value)

    def _on_task(self, state: TaskState, event: events.ProcessEvent) -> None:
        if isinstance(event, events.Progress):
            self._on_progress_of(state, event)
        elif isinstance(event, events.Ended):
            if state.way == CONTAINER:
                state.sampler_over, state.sampler_exit = True, event.exit_code
            self._on_end(state, event.exit_code)
        elif isinstance(event, events.Said) and state.way == CONTAINER:
            self._on_sampler(state, event)

    def _on_fork_server(self, server: ForkServer, event: Event) -> None:
        told = fork_server_message(event)
        own = [state for state in self.states.values() if state.fork_server is server]
        if server.failure:
            for state in own:
                if state.pid is not None and not state.over:
                    state.over = True
                    self._fail(self.failed(state, f"{server.failure}, and with it {state.task}"))
        for state in own:
            if isinstance(told, Started) and told.out == state.place.out:
                self.on_started(state, told.pid)
            elif isinstance(told, Ended) and told.out == state.place.out:
                self._on_end(state, told.exit_code)

    def _on_progress_of(self, state: TaskState, progress: events.Progress) -> None:
        if progress.steps != state.steps or progress.ready != state.ready:
            state.moved = time.monotonic()
        state.ready = progress.ready
        state.steps = progress.steps
        state.finished = progress.finished or state.finished
        if state.task == "worker:0":
            self._on_progress(_progress_text(state.steps, progress.last or {}, self._spec))

    def _on_sampler(self, state: TaskState, event: events.ProcessEvent) -> None:
        if isinstance(event, events.Ended):
            state.sampler_over, state.sampler_exit = True, event.exit_code
            if not state.over and not state.summary:
                how = exit_text(state.sampler_exit)
                self._fail(self.failed(state, f"the sampler of {state.where} {how}", sampler=True))
        elif isinstance(event, events.Said) and event.line == READY:
            state.sampler_ready = True
        elif isinstance(event, events.Said) and event.line.startswith("{"):
            try:
                state.summary = SamplerSummary.read(json.loads(event.line), "summary")
            except (BadInput, ValueError) as error:
                log.debug("%s: not a summary: %s: %.80s", state.where, error, event.line)

    def _on_end(self, state: TaskState, exit_code: int | None) -> None:
        state.over, state.exit_code = True, exit_code
        if exit_code != 0:
            self._fail(self.failed(state, f"{state.where} {exit_text(exit_code)}"))

    def _fail(self, failure: AttemptError) -> None:
        """Keeps the most specific failure: a cause replaces a consequence."""
        if self._failure is None or (self._is_echo(self._failure) and not self._is_echo(failure)):
            self._failure = failure

    def _is_echo(self, failure: AttemptError) -> bool:
        state = self.states.get(failure.origin.task) if failure.origin else None
        return state is not None and state.finished is not None and state.finished.kind == LOST_PEER

    def _hear_the_others(self) -> None:
        self.settle(lambda: all(state.over and state.finished for state in self.states.values()), OTHERS_S)
        # Only now it is known which failures are consequences.
        for state in self.states.values():
            if state.over and state.exit_code != 0:
                self._fail(self.failed(state, f"{state.where} {exit_text(state.exit_code)}"))

    def _with_words(self, failure: AttemptError) -> AttemptError:
        """Adds the message of the task and the end of its log, if the host answers."""
        origin = failure.origin
        if origin is None or origin.task not in self.states:
            return failure
        state = self.states[origin.task]
        path = state.place.sampler_log if origin.sampler else f"{state.place.out}/{STDERR_LOG}"
        words = self.tail(state.client, path)
        telling = [line for line in words if not NOISE.search(line)]
        said = state.words if state.words and not origin.sampler else (telling[-1] if telling else "")
        looked = try_ask(state.client, requests.Look(nics=("lo",)))
        if looked and looked.disk_free_bytes < FULL_BYTES:  # the task could not write a message
            said = f"the disk of {origin.host} is full ({state.client.facts.work}){'; ' if said else ''}{said}"
        reason = f"{failure.reason}: {said}" if said else failure.reason
        return AttemptError(reason, replace(origin, command=state.command, words=words))


def _route(client: AgentClient, listener: Callable[[Event], None]) -> None:
    """Sends a host's events to a listener, and first those of its fork server to the fork server.

    A fork server outlives an attempt: without this, an event between two attempts would be lost.
    """

    def deliver(event: Event) -> None:
        server = _fork_server(client, event)
        if server is not None:
            server.take(event)
        listener(event)

    client.attach(deliver)


def _fork_server(client: AgentClient | None, event: Event) -> ForkServer | None:
    """The fork server that an event is about, if it is about one."""
    name = getattr(event.value, "name", None)
    servers: Iterable[ForkServer] = client.fork_servers.values() if client is not None else ()
    return next((server for server in servers if server.process == name), None)


def try_ask(client: AgentClient, request: requests.Request[A], *, timeout_s: float = 10.0) -> A | None:
    """Sends a request that may fail; returns None if it does."""
    if client.lost is not None:
        return None
    try:
        return client.ask(request, timeout_s=timeout_s)
    except RunFailed as error:
        log.debug("%s: %s: %s", client.name, request.do, error)
        return None


def _progress_text(steps: int, last: Mapping[str, Any], spec: RunSpec) -> str:
    wanted = spec.measurement.steps
    total = f"/{spec.measurement.warmup_steps + wanted}" if wanted is not None else ""
    loss = last.get("loss")
    return f"step {steps}{total}" + (f", loss {loss:.3g}" if isinstance(loss, float) else "")
