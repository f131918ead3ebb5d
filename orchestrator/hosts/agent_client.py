"""A station: the controller's end of the steward on one host. Requests with answers, events, heartbeats, clock probes.

One thread reads what the steward says and hands answers to who waits for them and events to the run that holds the
host. A steward that is not heard for a while counts as lost: unreachable, which is not dead. It ends what it started by
itself when it hears nothing from here, and the next steward of that host ends what may still be left.
"""

from __future__ import annotations

import itertools
import json
import logging
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from driple.contracts.errors import HostError, HostLost, RunFailed
from driple.contracts.manifest import ClockProbe
from driple.orchestrator.hosts.agent_file import ARRIVAL, PYTHON_FLAGS, Agent
from driple.orchestrator.hosts.base import Channel, Host
from driple.orchestrator.hosts.bootstrap import NO_FOLDER

log = logging.getLogger(__name__)

BEAT_S = 2.0
SILENT_S = 15.0
"""A steward that was not heard for so long is lost. It counts its own patience from our last line."""
ORPHAN_S = 30.0
ANSWER_S = 20.0
READY_S = 30.0
BRING_S = 60.0
BUSY_S = ORPHAN_S + 15.0
"""How long a new steward waits for the one of a controller that has gone."""
PROBES = 32
RUNS = "runs"
"""Folder of attempts, under the host's work_dir."""
WALL_CLOCK_S = 2.0
"""A wall clock that is farther off is worth a warning."""

# Probes of several hosts at the same time would wait for one another's threads, and each for longer.
_one_clock_at_a_time = threading.Lock()


@dataclass(frozen=True)
class Event:
    """Something that a host told unasked."""

    host: str
    kind: str
    """`said`, `ended`, `progress`, `trouble`, or `lost`."""
    value: Any


class Station:
    """A host with its steward. Made for one sweep; a lost one is thrown away and another made."""

    def __init__(self, host: Host, agent: Agent, *, python: str, work_dir: str, owner: str) -> None:
        self.host = host
        self.name = host.name
        self.facts: dict[str, Any] = {}
        """What the steward said of its host when it was ready."""
        self.warm: Any = None
        """The process that forks tasks here, once there is one; see warm.py."""
        self.lost: HostError | None = None
        self.found: dict[str, Any] = {}
        """What was found when the host was looked at: its interfaces, GPUs, and what its python has."""
        self.agent_path = ""
        """Where the agent's file is on the host, once it is there."""
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
        """Connects, brings the agent's file if it is not there, starts the steward and waits until it is ready.

        Raises:
            HostError: with the host, the cause and the remedy.
        """
        self.host.open()
        argv = self._agent.arrival(self._python, self._work_dir)
        argv += ["steward", "--work", self._work_dir, "--owner", self._owner]
        argv += ["--wait", f"{BUSY_S:g}", "--orphan", f"{ORPHAN_S:g}"]
        self._channel = self.host.start(argv)
        with suppress(HostError):  # one that has ended already has said why
            self._channel.write(ARRIVAL)
        self._await_ready()
        self.agent_path = f"{self.facts['work']}/{self._agent.file_name}"
        threading.Thread(target=self._listen, name=f"listen to {self.name}", daemon=True).start()
        self.ask("remove", path=RUNS)  # of a controller that lost this host: it is ours alone now

    @property
    def agent_command(self) -> list[str]:
        """What runs the agent's file there."""
        return [self._python, *PYTHON_FLAGS, self.agent_path]

    def attach(self, tell: Callable[[Event], None] | None) -> None:
        """Who hears the events from now on; None for nobody."""
        self._tell = tell or (lambda event: None)

    def ask(self, do: str, *, timeout_s: float = ANSWER_S, **values: Any) -> Any:
        """Asks the steward and waits for its answer.

        Raises:
            HostLost: there is none in time.
            RunFailed: the steward could not do it; in its words.
        """
        return self.answer(self.request(do, **values), do, timeout_s)

    def request(self, do: str, **values: Any) -> Future[Any]:
        """Asks without waiting; `answer` waits. Several hosts can so be asked at once."""
        number = next(self._numbers)
        future: Future[Any] = Future()
        with self._lock:
            if self.lost is not None:
                raise self.lost
            self._waiting[number] = future
        self._send(json.dumps({"do": do, "id": number, **values}))
        return future

    def answer(self, future: Future[Any], do: str = "it", timeout_s: float = ANSWER_S) -> Any:
        """The answer to a request; raises as `ask` does."""
        try:
            return future.result(timeout_s)
        except FutureTimeout:
            self.lose(f"did not answer {do!r} within {timeout_s:g} s")
            assert self.lost is not None
            raise self.lost from None

    def beat(self) -> None:
        """Keeps the steward from thinking that we are gone, and notices when it is."""
        if self.lost is None:
            silent = time.monotonic() - self._heard
            if silent > SILENT_S:
                self.lose(f"was not heard for {silent:.0f} s")
            else:
                with suppress(HostLost):  # it is marked, and who waits has been told
                    self._send(json.dumps({"do": "beat", "id": 0}))

    def probe_clock(self, probes: int = PROBES) -> ClockProbe:
        """Compares the host's monotonic clock with ours: the round trip of least time of `probes`."""
        best: ClockProbe | None = None
        with _one_clock_at_a_time:
            for number in range(probes):
                sent = time.monotonic_ns()
                self._send(f"clock {number}")
                try:
                    received, line = self._clock_answers.get(timeout=ANSWER_S)
                except queue.Empty:
                    self.lose(f"did not answer a clock probe within {ANSWER_S:g} s")
                    assert self.lost is not None
                    raise self.lost from None
                if not line:
                    assert self.lost is not None
                    raise self.lost
                host_ns = int(line.split()[2])
                bound = (received - sent + 1) // 2
                if best is None or bound < best.bound_ns:
                    best = ClockProbe(host_ns, host_ns - (sent + received) // 2, bound)
        assert best is not None
        return best

    def lose(self, reason: str) -> None:
        """Gives the host up: all who wait for it are told. What may still run there ends by itself; see above."""
        self._lose(HostLost(f"{self.name}: {reason}; it may still run what was started, and is tidied when it is back"))

    def close(self, patience_s: float = 10.0) -> None:
        """Ends the steward, with all that it started, and the connection. Safe to call twice."""
        if self._channel is not None and self.lost is None:
            try:
                self.ask("quit", timeout_s=patience_s)
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
                raise HostLost(f"{self.name}: the steward was not ready within {READY_S:g} s") from None
            if line is None:
                words = self._channel.last_words.strip().splitlines()
                why = words[-1] if words else "it did not say why"
                code = self._channel.exit_code
                self._channel.close()
                if code == NO_FOLDER:
                    raise HostError(f"{self.name}: cannot use its work_dir {self._work_dir!r} ({why}); choose another")
                raise HostError(
                    f"{self.name}: the steward did not start with {self._python}: {why}; the host needs python3 >= 3.8"
                )
            said = _object(line)  # None for the noise that a login shell may make
            if said is not None and "bring" in said:
                self._channel.write(self._agent.content)
                deadline = time.monotonic() + BRING_S + READY_S
            elif said is not None and "busy" in said:
                log.warning("%s: in use by %s; waiting for it to leave", self.name, said["busy"].get("owner"))
                deadline = time.monotonic() + BUSY_S + READY_S
            elif said is not None and "failed" in said:
                self._channel.close()
                raise HostError(f"{self.name}: {said['failed']}")
            elif said is not None and "ready" in said:
                self.facts = said["ready"]
                self._heard = time.monotonic()
                ahead_s = self.facts["real_ns"] * 1e-9 - time.time()
                if abs(ahead_s) > WALL_CLOCK_S:
                    # Traces are aligned by monotonic clocks, so this spoils no measurement; it puzzles who reads logs.
                    log.warning(
                        "%s: its wall clock is %+.1f s from this machine's; is NTP at work?", self.name, ahead_s
                    )
                self.facts["wall_clock_ahead_s"] = round(ahead_s, 3)
                if self.facts.get("ended_left"):
                    log.warning("%s: ended what was left there: %s", self.name, ", ".join(self.facts["ended_left"]))
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
                if line.startswith("clock "):
                    self._clock_answers.put((now, line))
                else:
                    self._take(line)
        except HostError as error:
            self._lose(error)
            return
        except Exception:
            log.exception("%s: cannot make sense of its steward", self.name)
        words = self._channel.last_words.strip().splitlines()
        self.lose(f"its steward ended ({words[-1]})" if words else "its steward or the connection to it ended")

    def _take(self, line: str) -> None:
        said = _object(line)
        if said is None:
            return
        if "id" in said:
            future = self._waiting.pop(said["id"], None)
            if future is None:
                return  # a heartbeat's
            if "error" in said:
                future.set_exception(RunFailed(f"{self.name}: {said['error']}"))
            else:
                future.set_result(said.get("ok"))
            return
        for kind, value in said.items():
            self._tell(Event(self.name, kind, value))

    def _lose(self, error: HostError) -> None:
        with self._lock:
            if self.lost is not None:
                return
            self.lost = error
            waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            future.set_exception(error)
        self._clock_answers.put((0, ""))
        self._tell(Event(self.name, "lost", error))
        if self._channel is not None:
            self._channel.close()
        self.host.close()


class Heart:
    """Beats for every station of a sweep, in one thread."""

    def __init__(self) -> None:
        self._stations: list[Station] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        threading.Thread(target=self._run, name="heart", daemon=True).start()

    def add(self, station: Station) -> None:
        with self._lock:
            self._stations = [other for other in self._stations if other.lost is None] + [station]

    def stop(self) -> None:
        self._over.set()

    def _run(self) -> None:
        while not self._over.wait(BEAT_S):
            with self._lock:
                stations = list(self._stations)
            for station in stations:
                station.beat()


def _object(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
