"""Events of a fork server reach it, whether or not an attempt is listening."""

from __future__ import annotations

import json
from typing import cast

from driple.contracts.run_spec import RunSpec
from driple.orchestrator.attempt.monitor import Listener
from driple.orchestrator.attempt.task_command import WARM, ForkServer
from driple.orchestrator.hosts.agent_client import AgentClient
from driple.orchestrator.hosts.agent_file import AgentFile
from driple.orchestrator.hosts.local import LocalHost

READY = {"name": WARM, "line": json.dumps({"ready": {"pid": 7, "tensorflow": "2.21.0"}})}


def loading_station() -> AgentClient:
    """A station whose fork server has been started and is not ready yet."""
    station = AgentClient(LocalHost("h1"), AgentFile(b"", "0" * 64), python="python3", work_dir="/w", owner="tests")
    station.warm = ForkServer(station, "python3")
    return station


def listen(station: AgentClient) -> Listener:
    listener = Listener(cast("RunSpec", None), lambda text: None)
    listener.attach({station.name: station})
    return listener


def deliver(station: AgentClient, **event: object) -> None:
    """What the reader thread of the station does with a line of the agent."""
    station._take(json.dumps(event))


def test_ready_while_no_attempt_listens() -> None:
    station = loading_station()
    listen(station).detach()  # that attempt lost another host
    deliver(station, said=READY)
    assert station.warm.ready
    listen(station).until(lambda: station.warm.ready, 0.0, lambda: "the event was lost")


def test_ready_that_the_attempt_did_not_get_to() -> None:
    station = loading_station()
    listener = listen(station)
    deliver(station, said=READY)
    listener.detach()
    assert station.warm.ready


def test_the_end_of_a_fork_server_while_no_attempt_listens() -> None:
    station = loading_station()
    listen(station).detach()
    deliver(station, said=READY)
    deliver(station, ended={"name": WARM, "pid": 7, "exit_code": -9, "mono_ns": 1})
    assert not station.warm.ready and "SIGKILL" in station.warm.failure
