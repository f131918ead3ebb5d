"""Changes to a host are reverted, whatever ends its agent."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from agent_process import AgentProcesses

pytestmark = pytest.mark.integration


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[AgentProcesses]:
    with AgentProcesses(tmp_path / "work") as found:
        yield found


def test_a_short_command(agents: AgentProcesses) -> None:
    agent = agents.ready()
    done = agent.ask("run", argv=["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert done == {"exit_code": 3, "stdout": "out\n", "stderr": "err\n"}
    assert agent.ask("run", argv=["no-such-program"])["exit_code"] == -1
    assert "longer" in agent.ask("run", argv=["sleep", "60"], limit_s=0.2)["stderr"]


@pytest.mark.parametrize("end", ["quit", "hang up", "asked"])
def test_it_is_taken_off_once(agents: AgentProcesses, tmp_path: Path, end: str) -> None:
    mark = tmp_path / "mark"
    agent = agents.ready()
    agent.ask("undo_later", name="mark", argv=["sh", "-c", f"echo wrong >> {mark}"])
    agent.ask("undo_later", name="mark", argv=["sh", "-c", f"echo off >> {mark}"])
    assert not mark.exists()
    if end == "asked":
        assert agent.ask("undo_now") == {"failed": []}
        assert mark.read_text() == "off\n"
    if end == "quit":
        agent.ask("quit")
    agent.hang_up()
    assert agent.end()[0] == 0
    assert mark.read_text() == "off\n"


def test_one_that_was_killed_leaves_it_to_the_next(agents: AgentProcesses, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    first = agents.ready()
    first.ask("undo_later", name="mark", argv=["sh", "-c", f"echo off >> {mark}"])
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait()
    assert not mark.exists()
    agents.ready()
    assert mark.read_text() == "off\n"


def test_what_cannot_be_taken_off_is_said(agents: AgentProcesses) -> None:
    agent = agents.ready()
    agent.ask("undo_later", name="qdisc of eth0", argv=["false"])
    agent.ask("quit")
    agent.hang_up()
    assert "qdisc of eth0" in agent.end()[1]
