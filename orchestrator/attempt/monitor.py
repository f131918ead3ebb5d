"""What hosts tell of a run, taken one by one by the thread of its attempt; and what of it is bad news.

The first failure that is heard of is often an echo: a worker misses a server, and the server's own last words come a
moment later. So after bad news the others are listened to for a while, and the failure that tells most is kept.
"""

from __future__ import annotations

import json
import logging
import queue
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from driple.contracts.errors import BadInput, HostError, RunFailed
from driple.contracts.formats.task_files import LOST_PEER, STDERR_LOG
from driple.contracts.protocol import events, requests
from driple.contracts.protocol.forkserver_messages import Ended, Started
from driple.contracts.protocol.message import Message
from driple.contracts.protocol.sampler_lines import READY, SamplerSummary
from driple.contracts.run_spec import RunSpec
from driple.orchestrator.attempt.failure import AttemptFailed, Blame, Interrupted, ended_how
from driple.orchestrator.attempt.task_command import CONTAINER, WARM
from driple.orchestrator.attempt.task_state import TaskState
from driple.orchestrator.hosts.agent_client import AgentClient, Clients, Event

log = logging.getLogger(__name__)

A = TypeVar("A", bound=Message)

OTHERS_S = 3.0
TURN_S = 1.0
FULL_BYTES = 1024 * 1024
NOISE = re.compile(r"^[IWEF]\d{4} |cuInit|All log messages before absl")
"""What TensorFlow logs on every machine without a GPU is no cause of anything."""


class Listener:
    """The inbox of one attempt."""

    def __init__(self, spec: RunSpec, on_progress: Callable[[str], None]) -> None:
        self.states: dict[str, TaskState] = {}
        self.on_started: Callable[[TaskState, int], None] = lambda state, pid: None
        self._spec = spec
        self._on_progress = on_progress
        self._inbox: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._interrupted = False
        self._failure: AttemptFailed | None = None
        self._stations: dict[str, AgentClient] = {}

    def attach(self, stations: Clients) -> None:
        """Hears these hosts from now on."""
        self._stations = dict(stations)
        for station in stations.values():
            station.attach(self._inbox.put)

    def detach(self) -> None:
        """Hears nobody any more."""
        for station in self._stations.values():
            station.attach(None)

    def interrupt(self) -> None:
        """Makes `until` end with Interrupted. From any thread."""
        self._interrupted = True
        self._inbox.put(None)

    def until(self, done: Callable[[], bool], seconds: float, complaint: Callable[[], str]) -> None:
        """Takes what hosts tell until `done`.

        Raises:
            AttemptFailed: bad news, or `complaint` when the time is over.
            HostError: a host was lost.
            Interrupted: the user wants to stop.
        """
        deadline = time.monotonic() + seconds
        while not done():
            left = deadline - time.monotonic()
            if left <= 0:
                raise AttemptFailed(complaint())
            self.take(min(left, TURN_S))
            if self._interrupted:
                raise Interrupted("stopped by the user")
            if self._failure is not None:
                self._hear_the_others()
                raise self._with_words(self._failure)

    def settle(self, done: Callable[[], bool], seconds: float) -> None:
        """As `until`, for the way out: bad news is no news any more."""
        deadline = time.monotonic() + seconds
        while not done() and (left := deadline - time.monotonic()) > 0:
            try:
                self.take(min(left, TURN_S))
            except RunFailed as error:
                log.debug("on the way out: %s", error)

    def take(self, seconds: float) -> None:
        """Waits for one event, at most so long, and takes it."""
        try:
            event = self._inbox.get(timeout=seconds)
        except queue.Empty:
            return
        if event is not None:
            self._on(event)

    def failed(self, state: TaskState, reason: str, *, sampler: bool = False) -> AttemptFailed:
        """A failure of a task, with its command."""
        code = state.sampler_exit if sampler else state.exit_code
        return AttemptFailed(reason, Blame(state.station.name, state.task, state.command, code, sampler=sampler))

    def tail(self, station: AgentClient, path: str) -> tuple[str, ...]:
        """The end of a log, where the host can still be asked."""
        answer = quietly(station, requests.Tail(path=path, lines=10))
        return () if answer is None else answer.lines

    def _on(self, event: Event) -> None:
        if isinstance(event.value, HostError):
            raise event.value
        name = event.value.name
        if name == WARM:
            self._on_warm(self._stations[event.host], event)
            return
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

    def _on_warm(self, station: AgentClient, event: Event) -> None:
        if station.warm is None:
            return
        told = station.warm.take(event)
        own = [state for state in self.states.values() if state.station is station and state.way == WARM]
        if station.warm.failure:
            for state in own:
                if state.pid is not None and not state.over:
                    state.over = True
                    self._fail(self.failed(state, f"{station.warm.failure}, and with it {state.task}"))
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
                how = ended_how(state.sampler_exit)
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
            self._fail(self.failed(state, f"{state.where} {ended_how(exit_code)}"))

    def _fail(self, failure: AttemptFailed) -> None:
        """Keeps the failure that tells most: of a task that speaks of itself, before one that misses another."""
        if self._failure is None or (self._is_echo(self._failure) and not self._is_echo(failure)):
            self._failure = failure

    def _is_echo(self, failure: AttemptFailed) -> bool:
        state = self.states.get(failure.blame.task) if failure.blame else None
        return state is not None and state.finished is not None and state.finished.kind == LOST_PEER

    def _hear_the_others(self) -> None:
        self.settle(lambda: all(state.over and state.finished for state in self.states.values()), OTHERS_S)
        # What is known only now: who spoke of another.
        for state in self.states.values():
            if state.over and state.exit_code != 0:
                self._fail(self.failed(state, f"{state.where} {ended_how(state.exit_code)}"))

    def _with_words(self, failure: AttemptFailed) -> AttemptFailed:
        """Adds last words and the end of the log, as far as the host can still be asked."""
        blame = failure.blame
        if blame is None or blame.task not in self.states:
            return failure
        state = self.states[blame.task]
        path = state.place.sampler_log if blame.sampler else f"{state.place.out}/{STDERR_LOG}"
        words = self.tail(state.station, path)
        telling = [line for line in words if not NOISE.search(line)]
        said = state.words if state.words and not blame.sampler else (telling[-1] if telling else "")
        looked = quietly(state.station, requests.Look(nics=("lo",)))
        if looked and looked.disk_free_bytes < FULL_BYTES:  # who could not write could not say so either
            said = f"the disk of {blame.host} is full ({state.station.facts.work}){'; ' if said else ''}{said}"
        reason = f"{failure.reason}: {said}" if said else failure.reason
        return AttemptFailed(reason, replace(blame, command=state.command, words=words))


def quietly(station: AgentClient, request: requests.Request[A], *, timeout_s: float = 10.0) -> A | None:
    """Sends a request that may fail; returns None if it does."""
    if station.lost is not None:
        return None
    try:
        return station.ask(request, timeout_s=timeout_s)
    except RunFailed as error:
        log.debug("%s: %s: %s", station.name, request.do, error)
        return None


def _progress_text(steps: int, last: Mapping[str, Any], spec: RunSpec) -> str:
    wanted = spec.measurement.steps
    total = f"/{spec.measurement.warmup_steps + wanted}" if wanted is not None else ""
    loss = last.get("loss")
    return f"step {steps}{total}" + (f", loss {loss:.3g}" if isinstance(loss, float) else "")
