"""However an agent or one of its processes ends, nothing that was started is left, and nothing else is touched."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_process import DAEMON, AgentProcess, AgentProcesses, lives

pytestmark = pytest.mark.integration

WaitFor = Callable[..., Any]


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[AgentProcesses]:
    with AgentProcesses(tmp_path / "work") as found:
        yield found


def run_daemon(agents: AgentProcesses, agent: AgentProcess, name: str, wait_for: WaitFor, *how: str) -> list[int]:
    """Starts a process that is deaf, with a grandchild that is gone its own way; the numbers of both."""
    before = len(agents.noted())
    agent.run(name, sys.executable, "-c", DAEMON, agents.notes, *how)
    wait_for(lambda: len(agents.noted()) == before + 2)
    return agents.noted()[before:]


def test_stop_ends_the_deaf_and_those_who_went_their_own_way_and_nobody_else(
    agents: AgentProcesses, wait_for: WaitFor
) -> None:
    agent = agents.ready()
    other = agent.run("other", "sleep", "600")
    both = run_daemon(agents, agent, "deaf", wait_for)
    assert agent.ask("stop", names=["deaf", "nobody"], grace_s=0.2) == {"ended": {"deaf": -9}, "killed": ["deaf"]}
    assert not any(map(lives, both))
    assert agent.event("ended")["exit_code"] == -9
    assert agent.ask("stop", names=["deaf", "nobody"], grace_s=0.2) == {"ended": {}, "killed": []}
    assert lives(other)
    assert list((agents.work / "live").glob("*.json"))
    agent.ask("stop", names=["other"])
    assert not list((agents.work / "live").iterdir())


def test_sigterm_is_enough_for_one_that_listens_and_two_may_ask_for_it(agents: AgentProcesses) -> None:
    agent = agents.ready()
    agent.run("a", "sh", "-c", "trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done", talk=True)
    agent.run("b", "sleep", "600")
    agent.event("said")
    first, second = agent.send("stop", names=["a", "b"], grace_s=60), agent.send("stop", names=["a"], grace_s=60)
    expected = {"ended": {"a": 7}, "killed": []}
    assert agent.reply(second)["ok"] == expected
    assert agent.reply(first)["ok"] == {"ended": {"a": 7, "b": -15}, "killed": []}
    assert {event["ended"]["name"] for event in agent.events if "ended" in event} == {"a", "b"}


def test_a_second_stop_may_be_less_patient(agents: AgentProcesses, wait_for: WaitFor) -> None:
    agent = agents.ready()
    run_daemon(agents, agent, "deaf", wait_for)
    patient = agent.send("stop", names=["deaf"], grace_s=3600)
    assert agent.ask("stop", names=["deaf"], grace_s=0)["killed"] == ["deaf"]
    assert agent.reply(patient)["ok"]["killed"] == ["deaf"]


def test_what_a_process_leaves_behind_goes_with_it(agents: AgentProcesses, wait_for: WaitFor) -> None:
    agent = agents.ready()
    script = f"sleep 600 & echo $! >> {agents.notes}; setsid sleep 600 & echo $! >> {agents.notes}; exit 5"
    pid = agent.run("short", "sh", "-c", script)
    assert agent.event("ended") | {"mono_ns": 0} == {"name": "short", "pid": pid, "exit_code": 5, "mono_ns": 0}
    assert len(agents.noted()) == 2
    wait_for(lambda: not any(map(lives, agents.noted())))


def test_a_time_limit_ends_it(agents: AgentProcesses) -> None:
    agent = agents.ready()
    agent.run("slow", "sleep", "600", limit_s=0.1)
    assert agent.event("ended")["exit_code"] == -15
    assert "reached its time limit" in agent.event("trouble", lambda trouble: trouble["name"] == "slow")["what"]


@pytest.mark.parametrize("how", ["EOF", "quit", "SIGTERM", "SIGINT", "SIGHUP", "silence"])
def test_nothing_outlives_the_agent(how: str, agents: AgentProcesses, wait_for: WaitFor) -> None:
    agent = agents.ready(*(["--orphan", "1.5"] if how == "silence" else []))
    both = run_daemon(agents, agent, "deaf", wait_for, "scrub")
    fine = agent.run("fine", "sleep", "600")
    if how == "EOF":
        agent.hang_up()
    elif how == "quit":
        assert agent.ask("quit", grace_s=0.2) == {}
    elif how.startswith("SIG"):
        agent.process.send_signal(getattr(signal, how))
        time.sleep(0.1)
        agent.process.send_signal(getattr(signal, how))  # twice is hurry
    code, stderr = agent.end()
    assert code == (3 if how == "silence" else 0)
    assert ("no line from the controller" in stderr) == (how == "silence")
    assert len(stderr.splitlines()) == (how == "silence")
    assert not any(map(lives, [*both, fine]))
    assert agent.event("ended", lambda ended: ended["name"] == "fine")["exit_code"] == -15
    assert agent.event("ended", lambda ended: ended["name"] == "deaf")["exit_code"] == -9


def test_any_line_keeps_it_from_being_orphaned(agents: AgentProcesses) -> None:
    agent = agents.ready("--orphan", "2")
    for number in range(8):
        agent.write(f"clock {number}".encode())
        assert agent.line().startswith(f"clock {number} ")
        time.sleep(0.3)
    agent.ask("quit")
    assert agent.end() == (0, "")


def test_a_controller_that_does_not_read_counts_as_gone(agents: AgentProcesses) -> None:
    agents.work.mkdir()
    (agents.work / "long").write_text("x" * 60_000 + "\n")
    agent = agents.begin(reads=False)
    started = agent.send("start", name="task", argv=["sleep", "600"], stderr="task.err")
    for _ in range(400):
        agent.send("tail", path="long")
    assert agent.process.wait(60) == 3
    code, stderr = agent.end()
    assert "the controller does not read" in stderr
    assert len(stderr.splitlines()) == 1
    assert not lives(agent.reply(started)["ok"]["pid"])


@pytest.mark.parametrize("how", ["", "scrub"])
def test_the_next_agent_ends_what_a_killed_one_left(how: str, agents: AgentProcesses, wait_for: WaitFor) -> None:
    agent = agents.ready()
    both = run_daemon(agents, agent, "deaf", wait_for, *filter(None, [how]))
    script = f"(trap '' TERM; env -i sleep 600) & echo $! >> {agents.notes}; sleep 600"
    shell = agent.run("shell", "sh", "-c", script)
    wait_for(lambda: len(agents.noted()) == 3)
    agent.process.kill()
    agent.process.wait()
    wait_for(lambda: not lives(shell) and sum(map(lives, both)) == 1)  # the kernel ended those that it had started
    assert lives(agents.noted()[2])
    again = agents.begin()
    left = again.ready()["ended_left"]
    assert left == (["shell"] if how else ["deaf", "shell"])
    assert not lives(agents.noted()[2])
    if not how:  # one without environment and session cannot be told from a stranger
        assert not any(map(lives, both))
    assert not list((agents.work / "live").iterdir())
    again.ask("quit")
    assert again.end() == (0, "")


def test_a_record_that_fits_another_process_harms_nobody(agents: AgentProcesses) -> None:
    innocent = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        stat = Path(f"/proc/{innocent.pid}/stat").read_text().rpartition(")")[2].split()
        record = {
            "name": "old",
            "token": "0" * 32,
            "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            "pid_space": str(Path("/proc/self/ns/pid").readlink()),
            "pid": innocent.pid,
            "start": int(stat[19]),
        }
        live = agents.work / "live"
        live.mkdir(parents=True)
        others: list[dict[str, Any]] = [
            {"boot_id": "another"},
            {"start": int(stat[19]) - 1},
            {"pid_space": "pid:[1]"},
            {"pid": None},
        ]
        for number, other in enumerate(others):
            (live / f"{number}.json").write_text(json.dumps({**record, **other}))
        (live / "half.json").write_text('{"name": "ha')
        assert agents.begin().ready()["ended_left"] == []
        assert innocent.poll() is None
        assert not list(live.iterdir())
    finally:
        innocent.kill()
        innocent.wait()


def test_one_agent_at_a_time(agents: AgentProcesses, wait_for: WaitFor) -> None:
    first = agents.ready()
    second = agents.begin()
    busy = second.event("busy")
    assert (busy["owner"], busy["pid"]) == ("a test", first.process.pid)
    assert second.event("failed") == f"host is used by a test (pid {first.process.pid})"
    code, stderr = second.end()
    assert code == 1
    assert stderr == f"driple-agent: error: host is used by a test (pid {first.process.pid})\n"

    waits = agents.begin("--wait", "60")
    gives_up = agents.begin("--wait", "60")
    for one in (waits, gives_up):
        one.event("busy")
    gives_up.hang_up()
    assert gives_up.end() == (0, "")
    number = waits.send("beat")  # what is asked meanwhile is answered then
    first.process.kill()
    waits.ready()
    assert waits.reply(number)["ok"]


def test_a_folder_that_cannot_be_made_is_one_line(agents: AgentProcesses) -> None:
    agents.work.write_text("a file")
    agent = agents.begin()
    assert "File exists" in agent.event("failed")
    code, stderr = agent.end()
    assert (code, len(stderr.splitlines())) == (1, 1)
