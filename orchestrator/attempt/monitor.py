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
from collections.abc import Callable, Mapping
from typing import Any

from driple.contracts.errors import HostError, RunFailed
from driple.contracts.run_spec import RunSpec
from driple.orchestrator.attempt.failure import AttemptError, FailureOrigin, StoppedError, exit_text
from driple.orchestrator.attempt.task_command import CONTAINER, WARM, fork_server_message
from driple.orchestrator.attempt.task_state import TaskState
from driple.orchestrator.hosts.agent_client import Event, Station

log = logging.getLogger(__name__)

OTHERS_S = 3.0
TURN_S = 1.0
FULL_BYTES = 1024 * 1024
NOISE = re.compile(r"^[IWEF]\d{4} |cuInit|All log messages before absl")
"""Lines that TensorFlow logs on every machine without a GPU."""
ECHO = "went away before"
"""In the message of a task that ended because of another (workloads/runtime/watchdog.py)."""


class Listener:
    """Receives the events of one attempt."""

    def __init__(self, spec: RunSpec, on_progress: Callable[[str], None]) -> None:
        self.states: dict[str, TaskState] = {}
        self.on_started: Callable[[TaskState, int], None] = lambda state, pid: None
        self._spec = spec
        self._on_progress = on_progress
        self._inbox: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._interrupted = False
        self._failure: AttemptError | None = None
        self._stations: dict[str, Station] = {}

    def attach(self, stations: Mapping[str, Station]) -> None:
        """Receives the events of these hosts from now on."""
        self._stations = dict(stations)
        for station in stations.values():
            _route(station, self._inbox.put)

    def detach(self) -> None:
        """Stops receiving events."""
        for station in self._stations.values():
            _route(station, lambda event: None)

    def interrupt(self) -> None:
        """Makes `until` raise StoppedError. Thread-safe."""
        self._interrupted = True
        self._inbox.put(None)

    def until(self, done: Callable[[], bool], seconds: float, complaint: Callable[[], str]) -> None:
        """Handles events until `done`.

        Raises:
            AttemptError: a process failed; or `complaint` after the time limit.
            HostError: a host was lost.
            StoppedError: the user stopped the sweep.
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
        """Waits for one event, and handles it."""
        try:
            event = self._inbox.get(timeout=seconds)
        except queue.Empty:
            return
        if event is not None:
            self._on(event)

    def failed(self, state: TaskState, reason: str, *, sampler: bool = False) -> AttemptError:
        """The failure of a task, with its command."""
        code = state.sampler_exit if sampler else state.exit_code
        return AttemptError(reason, FailureOrigin(state.station.name, state.task, state.command, code))

    def tail(self, station: Station, path: str) -> tuple[str, ...]:
        """The end of a log, if the host answers."""
        answer = try_ask(station, "tail", path=path, lines=10)
        return tuple((answer or {}).get("lines", ()))

    def _on(self, event: Event) -> None:
        if event.kind == "lost":
            assert isinstance(event.value, HostError)
            raise event.value
        name = str(event.value.get("name", ""))
        if name == WARM:
            self._on_warm(self._stations[event.host], event)
            return
        for state in self.states.values():
            if name == state.place.process:
                self._on_task(state, event)
            elif name == state.place.sampler:
                self._on_sampler(state, event)

    def _on_task(self, state: TaskState, event: Event) -> None:
        if event.kind == "progress":
            self._on_progress_of(state, event.value)
        elif event.kind == "ended":
            if state.way == CONTAINER:
                state.sampler_over, state.sampler_exit = True, event.value["exit_code"]
            self._on_end(state, event.value["exit_code"])
        elif event.kind == "said" and state.way == CONTAINER:
            self._on_sampler(state, event)

    def _on_warm(self, station: Station, event: Event) -> None:
        if station.warm is None:
            return
        told = fork_server_message(event)
        own = [state for state in self.states.values() if state.station is station and state.way == WARM]
        if station.warm.failure:
            for state in own:
                if state.pid is not None and not state.over:
                    state.over = True
                    self._fail(self.failed(state, f"{station.warm.failure}, and with it {state.task}"))
        for state in own:
            if "started" in told and told["started"].get("out") == state.place.out:
                self.on_started(state, int(told["started"]["pid"]))
            elif "ended" in told and told["ended"].get("out") == state.place.out:
                self._on_end(state, int(told["ended"]["exit_code"]))

    def _on_progress_of(self, state: TaskState, progress: Mapping[str, Any]) -> None:
        if progress["steps"] != state.steps or progress["ready"] != state.ready:
            state.moved = time.monotonic()
        state.ready = bool(progress["ready"])
        state.steps = int(progress["steps"])
        if progress.get("finished"):
            state.finished = progress["finished"]
        if state.task == "worker:0":
            self._on_progress(_progress_text(state.steps, progress.get("last") or {}, self._spec))

    def _on_sampler(self, state: TaskState, event: Event) -> None:
        if event.kind == "ended":
            state.sampler_over, state.sampler_exit = True, event.value["exit_code"]
            if not state.over and not state.summary:
                how = exit_text(state.sampler_exit)
                self._fail(self.failed(state, f"the sampler of {state.where} {how}", sampler=True))
        elif event.kind == "said" and event.value["line"] == "ready":
            state.sampler_ready = True
        elif event.kind == "said" and event.value["line"].startswith("{"):
            try:
                state.summary = json.loads(event.value["line"])
            except ValueError:
                log.debug("%s: not a summary: %.80s", state.where, event.value["line"])

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
        return state is not None and ECHO in state.words

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
        about_sampler = "sampler" in failure.reason
        path = state.place.sampler_log if about_sampler else f"{state.place.out}/stderr.log"
        words = self.tail(state.station, path)
        telling = [line for line in words if not NOISE.search(line)]
        said = state.words if state.words and not about_sampler else (telling[-1] if telling else "")
        looked = try_ask(state.station, "look", nics=["lo"])
        if looked and looked["disk_free_bytes"] < FULL_BYTES:  # the task could not write a message
            said = f"the disk of {origin.host} is full ({state.station.facts['work']}){'; ' if said else ''}{said}"
        reason = f"{failure.reason}: {said}" if said else failure.reason
        return AttemptError(reason, FailureOrigin(origin.host, origin.task, state.command, origin.exit_code, words))


def _route(station: Station, listener: Callable[[Event], None]) -> None:
    """Sends a host's events to a listener, and first those of its fork server to the fork server.

    A fork server outlives an attempt: without this, an event between two attempts would be lost.
    """

    def deliver(event: Event) -> None:
        if station.warm is not None and event.kind != "lost" and event.value.get("name") == WARM:
            station.warm.take(event)
        listener(event)

    station.attach(deliver)


def try_ask(station: Station, do: str, *, timeout_s: float = 10.0, **values: Any) -> Any:
    """Sends an optional request; None if the host does not answer."""
    if station.lost is not None:
        return None
    try:
        return station.ask(do, timeout_s=timeout_s, **values)
    except RunFailed as error:
        log.debug("%s: %s: %s", station.name, do, error)
        return None


def _progress_text(steps: int, last: Mapping[str, Any], spec: RunSpec) -> str:
    wanted = spec.measurement.steps
    total = f"/{spec.measurement.warmup_steps + wanted}" if wanted is not None else ""
    loss = last.get("loss")
    return f"step {steps}{total}" + (f", loss {loss:.3g}" if isinstance(loss, float) else "")
