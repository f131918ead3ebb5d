"""AgentClient: the controller's end of the agent on one host. Requests and answers, events, heartbeats, clock probes.

One thread reads the agent's lines and passes answers to their callers and events to the run that uses the host. An
agent that is silent for too long counts as lost: unreachable, but not necessarily dead. An agent ends what it started
when it hears nothing from here, and the next agent on that host ends what may still be left.
"""

from __future__ import annotations

import itertools
import json
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from driple.contracts.errors import BadInput, HostError, HostLost, RunFailed
from driple.contracts.fingerprint import Fingerprint
from driple.contracts.manifest import ClockProbe
from driple.contracts.protocol import events, requests
from driple.contracts.protocol.clock import CLOCK, clock_mono_ns, clock_request
from driple.contracts.protocol.message import Message, read_tagged
from driple.orchestrator.hosts.agent_file import BOOTSTRAP, PYTHON_FLAGS, AgentFile
from driple.orchestrator.hosts.base import Channel, Host
from driple.orchestrator.hosts.bootstrap import BRING, NO_FOLDER

log = logging.getLogger(__name__)

BEAT_S = 2.0
SILENT_S = 15.0  # an agent that is silent for this long is lost. The agent counts its own limit from our last line
ORPHAN_S = 30.0
ANSWER_S = 20.0
READY_S = 30.0
BRING_S = 60.0
BUSY_S = ORPHAN_S + 15.0  # how long a new agent waits for the one of a controller that is gone
PROBES = 32
RUNS = "runs"  # folder of attempts, in the host's work_dir
WALL_CLOCK_S = 2.0  # a wall clock that is off by more causes a warning

# Simultaneous probes of several hosts would wait for each other's threads, which lengthens all of them.
_one_clock_at_a_time = threading.Lock()


A = TypeVar("A", bound=Message)


@dataclass(frozen=True)
class Event:
    """An event of a host."""

    host: str
    value: events.ProcessEvent | HostError  # an error if the host was lost


class AgentClient:
    """A host with its agent. Used for one sweep; a lost one is discarded and replaced."""

    facts: events.Ready  # facts about the host, once the agent is ready

    def __init__(self, host: Host, agent: AgentFile, *, python: str, work_dir: str, owner: str) -> None:
        self.host = host
        self.name = host.name
        self.wall_clock_ahead_s = 0.0  # of this machine's
        self.fork_servers: dict[str, Any] = {}  # processes that fork tasks here, by framework; see task_command.py
        self.lost: HostError | None = None
        self.info: requests.HostInfo | None = None
        """Interfaces, GPUs and packages of the host, once a run has asked for them."""
        self.fingerprint: Fingerprint | None = None  # of its machine; see fingerprints.py
        self.agent_path = ""  # path of the agent's file on the host, once it is there
        self._python = python
        self._agent = agent
        self._work_dir = work_dir
        self._owner = owner
        self._channel: Channel | None = None
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        self._clock_answers: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
        self._tell: Callable[[Event], None] = lambda event: None
        self._heard = time.monotonic()

    def open(self) -> None:
        """Connects, copies the agent's file if needed, and starts the agent. Raises HostError with cause and remedy."""
        self.host.open()
        argv = self._agent.command(self._python, self._work_dir)
        argv += ["daemon", "--work", self._work_dir, "--owner", self._owner]
        argv += ["--wait", f"{BUSY_S:g}", "--orphan", f"{ORPHAN_S:g}"]
        self._channel = self.host.start(argv)
        with suppress(HostError):  # if it has ended already, the cause is reported below
            self._channel.write(BOOTSTRAP)
        self._await_ready()
        self.agent_path = f"{self.facts.work}/{self._agent.file_name}"
        threading.Thread(target=self._listen, name=f"listen to {self.name}", daemon=True).start()
        self.ask(requests.Remove(path=RUNS))  # left by a controller that lost this host; we have it alone now

    @property
    def agent_command(self) -> list[str]:
        """Head of a command line that runs the agent's file on the host."""
        return [self._python, *PYTHON_FLAGS, self.agent_path]

    def attach(self, tell: Callable[[Event], None]) -> None:
        self._tell = tell

    def ask(self, request: requests.Request[A], *, timeout_s: float = ANSWER_S) -> A:
        """Sends a request and waits. Raises HostLost if no answer comes, or RunFailed with the agent's message."""
        return self.post(request)(timeout_s)

    def post(self, request: requests.Request[A]) -> partial[A]:
        """Sends a request, so that several hosts work at once. Call the result to wait for the answer, as in `ask`."""
        number = next(self._numbers)
        future: Future[Any] = Future()
        with self._lock:
            if self.lost is not None:
                raise self.lost
            self._waiting[number] = future
        self._send(request.to_line(number))
        return partial(self._answer, request, future)

    def _answer(self, request: requests.Request[A], future: Future[Any], timeout_s: float = ANSWER_S) -> A:
        try:
            return request.read_answer(future.result(timeout_s), request.do)
        except BadInput as error:
            raise RunFailed(f"{self.name}: cannot read an answer of the agent: {error}") from None
        except FutureTimeout:
            raise self.lose(f"did not answer {request.do!r} within {timeout_s:g} s") from None

    def beat(self) -> None:
        """Sends a heartbeat, and notices when the agent is silent."""
        if self.lost is None:
            silent = time.monotonic() - self._heard
            if silent > SILENT_S:
                self.lose(f"was not heard for {silent:.0f} s")
            else:
                with suppress(HostLost):  # it is marked as lost, and every caller has been told
                    self._send(requests.Beat().to_line(0))

    def probe_clock(self, probes: int = PROBES) -> ClockProbe:
        """Compares the host's monotonic clock with ours, by the shortest round trip of `probes`."""
        best: ClockProbe | None = None
        with _one_clock_at_a_time:
            for number in range(probes):
                sent = time.monotonic_ns()
                self._send(clock_request(number))
                try:
                    received, line = self._clock_answers.get(timeout=ANSWER_S)
                except queue.Empty:
                    raise self.lose(f"did not answer a clock probe within {ANSWER_S:g} s") from None
                if not line:
                    raise self.lose("is lost")
                host_ns = clock_mono_ns(line)
                bound = (received - sent + 1) // 2
                if best is None or bound < best.bound_ns:
                    best = ClockProbe(host_ns, host_ns - (sent + received) // 2, bound)
        assert best is not None
        return best

    def lose(self, reason: str) -> HostError:
        """Gives the host up and tells every caller; returns the first error. What still runs ends; see above."""
        after = "it may still run what was started, and is tidied when it is back"
        return self._lose(HostLost(f"{self.name}: {reason}; {after}"))

    def close(self, patience_s: float = 10.0) -> None:
        """Ends the agent, with all that it started, and the connection. Safe to call twice."""
        if self._channel is not None and self.lost is None:
            try:
                self.ask(requests.Quit(), timeout_s=patience_s)
            except RunFailed as error:
                log.debug("%s: closing: %s", self.name, error)
        self._lose(HostLost(f"{self.name}: closed"))

    def _await_ready(self) -> None:
        assert self._channel is not None
        deadline = time.monotonic() + READY_S
        while True:
            try:
                line = self._channel.receive(max(0.0, deadline - time.monotonic()))
            except TimeoutError:
                self._channel.close()
                raise HostLost(f"{self.name}: the agent was not ready within {READY_S:g} s") from None
            if line is None:
                words = self._channel.last_words.strip().splitlines()
                why = words[-1] if words else "no reason is known"
                code = self._channel.exit_code
                self._channel.close()
                if code == NO_FOLDER:
                    raise HostError(f"{self.name}: cannot use its work_dir {self._work_dir!r} ({why}); choose another")
                raise HostError(
                    f"{self.name}: the agent did not start with {self._python}: {why}; the host needs python3 >= 3.8"
                )
            said = _object(line)  # empty for the noise that a login shell may make
            try:
                event = read_tagged(events.EVENTS, said)
            except BadInput as error:
                self._channel.close()
                raise HostError(f"{self.name}: cannot read an event of the agent: {error}") from None
            if BRING in said:
                self._channel.write(self._agent.content)
                deadline = time.monotonic() + BRING_S + READY_S
            elif isinstance(event, events.Busy):
                log.warning("%s: in use by %s; waiting for it to leave", self.name, event.owner)
                deadline = time.monotonic() + BUSY_S + READY_S
            elif isinstance(event, events.Failed):
                self._channel.close()
                raise HostError(f"{self.name}: {event.why}")
            elif isinstance(event, events.Ready):
                self.facts = event
                self._heard = time.monotonic()
                ahead_s = event.real_ns * 1e-9 - time.time()
                if abs(ahead_s) > WALL_CLOCK_S:
                    # Traces are aligned by monotonic clocks, so this affects only readers of logs.
                    log.warning(
                        "%s: its wall clock is %+.1f s from this machine's; is NTP at work?", self.name, ahead_s
                    )
                self.wall_clock_ahead_s = round(ahead_s, 3)
                if event.ended_left:
                    log.warning("%s: ended processes of an earlier run: %s", self.name, ", ".join(event.ended_left))
                return

    def _send(self, line: str) -> None:
        assert self._channel is not None
        if self.lost is not None:
            raise self.lost
        try:
            self._channel.send(line)
        except HostLost as error:
            self._lose(error)
            raise

    def _listen(self) -> None:
        assert self._channel is not None
        try:
            while True:
                line = self._channel.receive(None)
                now = time.monotonic_ns()
                if line is None:
                    break
                self._heard = time.monotonic()
                if line.startswith(CLOCK):
                    self._clock_answers.put((now, line))
                else:
                    self._take(line)
        except HostError as error:
            self._lose(error)
            return
        except Exception:
            log.exception("%s: cannot read the lines of its agent", self.name)
        words = self._channel.last_words.strip().splitlines()
        self.lose(f"its agent ended ({words[-1]})" if words else "its agent or the connection to it ended")

    def _take(self, line: str) -> None:
        said = _object(line)
        if "id" in said:
            future = self._waiting.pop(said["id"], None)
            if future is None:
                return  # a heartbeat's
            if "error" in said:
                future.set_exception(RunFailed(f"{self.name}: {said['error']}"))
            else:
                future.set_result(said.get("ok"))
            return
        event = read_tagged(events.EVENTS, said)
        if isinstance(event, events.Said | events.Progress | events.Ended | events.Trouble):
            self._tell(Event(self.name, event))

    def _lose(self, error: HostError) -> HostError:
        with self._lock:
            if self.lost is not None:
                return self.lost
            self.lost = error
            waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.set_exception(error)
        self._clock_answers.put((0, ""))
        self._tell(Event(self.name, error))
        if self._channel is not None:
            self._channel.close()
        self.host.close()
        return error


Clients = Mapping[str, AgentClient]  # by host


class Heartbeats:
    """Sends the heartbeats of all clients of a sweep, in one thread."""

    def __init__(self) -> None:
        self._clients: list[AgentClient] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        threading.Thread(target=self._run, name="heartbeats", daemon=True).start()

    def add(self, client: AgentClient) -> None:
        with self._lock:
            self._clients = [other for other in self._clients if other.lost is None] + [client]

    def stop(self) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(BEAT_S):
            with self._lock:
                clients = list(self._clients)
            for client in clients:
                client.beat()


def _object(line: str) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
