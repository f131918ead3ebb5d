from __future__ import annotations

from typing import cast

import pytest

from driple.contracts.errors import RunFailed
from driple.contracts.protocol.events import Ended, Said
from driple.contracts.protocol.forkserver_messages import Ready, Started
from driple.orchestrator.attempt.task_command import ForkServer, TaskPlace, container_command, fork_server_message
from driple.orchestrator.config.inventory import HostSpec
from driple.orchestrator.hosts.agent_client import AgentClient, Event

PLACE = TaskPlace("worker:0", "/scratch/runs/run-1.abc")


def test_a_container_has_its_limits_its_port_and_the_same_paths() -> None:
    spec = HostSpec(name="h1", address="h1", image="driple:1", cpus=2.0, memory="4g", data_dir="/data")
    argv = container_command(
        spec, PLACE, name="driple-x", address="192.0.2.1:2222", gpu=3, agent="/scratch/agent.pyz", user="7:8"
    )
    text = " ".join(argv)
    assert text.startswith("docker run --rm --interactive --init --name driple-x --user 7:8 ")
    for words in (
        "--publish 192.0.2.1:2222:2222",
        "--gpus device=3",
        "--cpus 2.0",
        "--memory 4g",
        "--volume /scratch/runs/run-1.abc:/scratch/runs/run-1.abc",
        "--volume /scratch/agent.pyz:/scratch/agent.pyz:ro",
        "--volume /data:/data:ro",
    ):
        assert f" {words} " in text
    assert text.endswith("driple:1 python3 /scratch/agent.pyz --spec /scratch/runs/run-1.abc/trace/worker-0.json")


def test_a_container_needs_an_image() -> None:
    with pytest.raises(RunFailed, match="no image"):
        container_command(
            HostSpec(name="h1", address="h1"), PLACE, name="n", address="a:1", gpu=None, agent="a", user="0:0"
        )


def test_processes_of_two_attempts_never_share_a_name() -> None:
    other = TaskPlace("worker:0", "/scratch/runs/run-1.def")
    assert PLACE.process != other.process and PLACE.sampler != other.sampler


def test_only_one_worker_leaves_the_graph() -> None:
    assert PLACE.graph is not None and "--graph" in PLACE.command("python3", lifeline=False)
    for task in ("worker:1", "ps:0"):
        assert "--graph" not in TaskPlace(task, "/x").command("python3", lifeline=True)
    assert PLACE.command("python3", lifeline=True)[-1] == "--watch-stdin"


@pytest.mark.parametrize("line", ["", "plain words", "[1]", '"text"', '{"ready": {"tensorflow": "2"}'])
def test_noise_of_a_warm_process_is_no_news(line: str) -> None:
    warm = ForkServer(cast("AgentClient", None), "python3", "tensorflow")
    event = Event("h1", Said(name=warm.process, line=line))
    warm.take(event)
    assert fork_server_message(event) is None
    assert not warm.ready and warm.failure is None


def test_a_warm_process_is_ready_until_it_ends() -> None:
    warm = ForkServer(cast("AgentClient", None), "python3", "tensorflow")
    warm.take(
        Event("h1", Said(name=warm.process, line=Ready(pid=1, framework="tensorflow", version="2.21.0").to_line()))
    )
    assert warm.ready
    started = Started(pid=2, task="ps:0", out="x")
    assert fork_server_message(Event("h1", Said(name=warm.process, line=started.to_line()))) == started
    warm.take(Event("h1", Ended(name=warm.process, pid=1, exit_code=-9, mono_ns=1)))
    assert "SIGKILL" in str(warm.failure)
