"""Events of a fork server reach it, whether or not an attempt is listening."""

from __future__ import annotations

import json
from typing import cast

from driple.contracts.run_spec import RunSpec
from driple.orchestrator.attempt.monitor import Listener
from driple.orchestrator.attempt.task_command import ForkServer
from driple.orchestrator.hosts.agent_client import AgentClient
from driple.orchestrator.hosts.agent_file import AgentFile
from driple.orchestrator.hosts.local import LocalHost

FRAMEWORK = "tensorflow"
NAME = f"warm {FRAMEWORK}"
READY = {"name": NAME, "line": json.dumps({"ready": {"pid": 7, "framework": FRAMEWORK, "version": "2.21.0"}})}


def loading_client() -> AgentClient:
    """A client whose fork server has been started and is not ready yet."""
    client = AgentClient(LocalHost("h1"), AgentFile(b"", "0" * 64), python="python3", work_dir="/w", owner="tests")
    client.fork_servers[FRAMEWORK] = ForkServer(client, "python3", FRAMEWORK)
    return client


def listen(client: AgentClient) -> Listener:
    listener = Listener(cast("RunSpec", None), lambda text: None)
    listener.attach({client.name: client})
    return listener


def deliver(client: AgentClient, **event: object) -> None:
    """What the reader thread of the client does with a line of the agent."""
    client._take(json.dumps(event))


def test_ready_while_no_attempt_listens() -> None:
    client = loading_client()
    listen(client).detach()  # that attempt lost another host
    deliver(client, said=READY)
    assert client.fork_servers[FRAMEWORK].ready
    listen(client).until(lambda: client.fork_servers[FRAMEWORK].ready, 0.0, lambda: "the event was lost")


def test_ready_that_the_attempt_did_not_get_to() -> None:
    client = loading_client()
    listener = listen(client)
    deliver(client, said=READY)
    listener.detach()
    assert client.fork_servers[FRAMEWORK].ready


def test_the_end_of_a_fork_server_while_no_attempt_listens() -> None:
    client = loading_client()
    listen(client).detach()
    deliver(client, said=READY)
    deliver(client, ended={"name": NAME, "pid": 7, "exit_code": -9, "mono_ns": 1})
    assert not client.fork_servers[FRAMEWORK].ready and "SIGKILL" in client.fork_servers[FRAMEWORK].failure
