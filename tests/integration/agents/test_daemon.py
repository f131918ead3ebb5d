"""An agent's answers to a controller, and to one that sends nonsense."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from agent_process import COMMAND, AgentProcess, AgentProcesses, lives
from nvml_stub import build as build_stub
from old_pythons import old_python

from driple.agents.bundle import build
from driple.contracts.fingerprint import MEASURES
from driple.contracts.formats.trace import STEP_COLUMNS

pytestmark = pytest.mark.integration

WaitFor = Callable[..., Any]
STEP = {"step": 0, "global_step": 1, "start_mono_ns": 2**60, "end_mono_ns": 2**60 + 1, "loss": 0.5}


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[AgentProcesses]:
    with AgentProcesses(tmp_path / "work") as found:
        yield found


@pytest.fixture
def agent(agents: AgentProcesses) -> AgentProcess:
    return agents.ready()


@pytest.mark.parametrize("python", ["this", "oldest"])
def test_a_whole_dialogue_with_the_one_file_that_hosts_get(python: str, tmp_path: Path, agents: AgentProcesses) -> None:
    found = old_python(8, 9) if python == "oldest" else Path(sys.executable)
    if found is None:
        pytest.skip("neither Python 3.8 nor 3.9 is installed")
    build(tmp_path / "agent.pyz")
    # -I and hardly an environment: the host has neither this project nor anything of ours.
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    agents.work = Path("~/work here")
    one = agents.begin(command=[found, "-I", tmp_path / "agent.pyz", "daemon"], env=environment)
    ready = one.ready()
    assert ready["work"] == str(tmp_path / "work here")
    assert ready["pid"] == one.process.pid
    assert ready["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert ready["cores"] >= 1
    assert ready["memory_bytes"] > 2**27
    assert abs(ready["real_ns"] - time.time_ns()) < 60e9
    one.write(b"clock 17")
    name, number, mono, _ = one.line().split()
    assert (name, number) == ("clock", "17")
    assert ready["mono_ns"] < int(mono) < one.ask("beat")["mono_ns"] < time.monotonic_ns()

    assert one.ask("write", path="runs/a/job.json", text='{"ä": 1}\n') == {}
    pid = one.run("talker", "sh", "-c", "echo $0 $X $PWD; read line; echo \"got $line\"; exit 3", "~/x", talk=True,
                  env={"X": "a b"}, cwd="runs/a", stderr="runs/a/task/stderr.log")  # fmt: skip
    assert one.event("said") == {"name": "talker", "line": f"{tmp_path}/x a b {tmp_path}/work here/runs/a"}
    one.ask("tell", name="talker", line="ünïcode")
    assert one.event("said")["line"] == "got ünïcode"
    ended = one.event("ended")
    assert (ended["name"], ended["pid"], ended["exit_code"]) == ("talker", pid, 3)
    assert int(mono) < ended["mono_ns"] < time.monotonic_ns()

    speeds = one.ask("take_fingerprint")["fingerprint"]
    assert speeds["cores"] == ready["cores"] and min(speeds[name] for name in MEASURES) > 0

    steps = [STEP, {**STEP, "loss": None}]
    one.ask("write", path="runs/a/task/steps.jsonl", text="".join(json.dumps(step) + "\n" for step in steps))
    assert one.ask("steps", source="runs/a/task/steps.jsonl", target="runs/a/steps/x.parquet")["rows"] == 2
    files = one.ask("sums", folder="runs/a")["files"]
    assert set(files) == {"job.json", "task/stderr.log", "task/steps.jsonl", "steps/x.parquet"}
    for name, about in files.items():
        content = (tmp_path / "work here/runs/a" / name).read_bytes()
        assert about == {"size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
    assert one.ask("tail", path="runs/a/task/steps.jsonl", lines=1)["lines"] == [json.dumps(steps[1])]
    ports = one.ask("ports", count=50)["ports"]
    assert len(set(ports)) == 50
    look = one.ask("look", nics=["lo", "none0"], gpus=True, python=[sys.executable])
    assert look["nics"]["none0"] is None
    assert look["nics"]["lo"]["up"] is True
    assert "127.0.0.1" in look["nics"]["lo"]["addresses"]
    assert look["python"]["version"] == sys.version.split()[0]
    assert look["python"]["packages"]["driple"]
    assert (look["gpus"] is None) == ("gpus_error" in look)
    assert one.ask("remove", path="runs") == one.ask("remove", path="runs") == {}
    assert not (tmp_path / "work here/runs").exists()
    assert one.ask("quit") == {}
    assert one.end() == (0, "")
    assert sorted(path.name for path in (tmp_path / "work here").iterdir()) == ["live", "lock"]


def test_a_probe_of_the_network_counts_what_was_sent(agent: AgentProcess) -> None:
    listening = agent.ask("listen")
    assert listening["tcp_port"] == listening["udp_port"]
    sent = agent.ask("send", address="127.0.0.1", port=listening["tcp_port"], seconds=0.1, packets=50, payload=500)
    heard = agent.ask("heard", token=listening["token"])
    assert heard["tcp_bytes"] == sent["bytes"] > 0
    assert heard["tcp_seconds"] > 0
    assert sent["packets"] == 50
    assert 0 < heard["udp_packets"] <= 50
    assert "no such probe" in agent.refused("heard", token=listening["token"])
    silent = agent.ask("listen")
    assert agent.ask("heard", token=silent["token"]) == {"tcp_bytes": 0, "tcp_seconds": 0.0, "udp_packets": 0}
    assert "refused" in agent.refused("send", address="127.0.0.1", port=silent["tcp_port"])


def test_it_lists_the_gpus(agents: AgentProcesses, tmp_path: Path) -> None:
    build_stub(tmp_path / "stub")
    agent = agents.ready(env={**os.environ, "LD_LIBRARY_PATH": str(tmp_path / "stub"), "NVML_STUB": "gpus=2"})
    gpus = agent.ask("look", gpus=True)["gpus"]
    assert [gpu["index"] for gpu in gpus] == [0, 1]
    assert len({gpu["uuid"] for gpu in gpus}) == 2
    assert all(isinstance(gpu["name"], str) for gpu in gpus)


def test_ports_are_free_and_not_those_of_outgoing_connections(agent: AgentProcess) -> None:
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    for port in agent.ask("ports", count=20)["ports"]:
        assert not low <= port <= high or low <= 20_000
        with socket.socket() as sock:
            sock.bind(("", port))


CANNOT_START: tuple[tuple[dict[str, Any], str], ...] = (
    ({"argv": ["/no/such/program"]}, "/no/such/program: No such file or directory"),
    ({"argv": ["no-such-program"]}, "no-such-program: No such file or directory"),
    ({"argv": ["/etc/passwd"]}, "/etc/passwd: Permission denied"),
    ({"argv": ["true"], "cwd": "nowhere"}, "nowhere: No such file or directory"),
    ({"argv": ["true", "a\0b"]}, "null byte"),
    ({"argv": ["true"], "env": {"A=B": "c"}}, "illegal environment variable name"),
    ({"argv": []}, "a program as the first of argv"),
    ({"argv": ["true"], "stderr": "/etc/x"}, "is not inside"),
    ({"argv": ["true"], "stdout": "../x"}, "is not inside"),
    ({"argv": ["true"], "stderr": "link"}, "Too many levels of symbolic links"),
    ({"argv": ["true"], "limit_s": 0}, "limit_s: expected"),
    ({"argv": "true"}, "start.argv: expected list"),
    ({"argv": ["true"], "shell": True}, "unknown key 'shell'"),
)


def test_what_cannot_start_is_an_answer(agent: AgentProcess, agents: AgentProcesses, tmp_path: Path) -> None:
    (agents.work / "link").symlink_to(tmp_path / "outside")
    for fields, expected in CANNOT_START:
        assert expected in agent.refused("start", **{"name": "x", "stderr": "x.err", **fields})
        assert list((agents.work / "live").iterdir()) == []
    assert not (tmp_path / "outside").exists()
    agent.run("x", "true")
    assert agent.event("ended")["exit_code"] == 0


def test_names_are_of_the_living(agent: AgentProcess) -> None:
    pid = agent.run("x", "sleep", "600")
    assert agent.refused("start", name="x", argv=["true"], stderr="e") == f"'x' runs already, with pid {pid}"
    agent.ask("stop", names=["x"])
    agent.run("x", "true")


def test_stdin_is_a_lifeline_or_nothing_and_files_are_added_to(agent: AgentProcess, agents: AgentProcesses) -> None:
    for name, lifeline in (("holds", True), ("none", False)):
        agent.run(name, "sh", "-c", "cat; echo over; echo bad >&2", stdout="out", stderr="out", lifeline=lifeline)
    assert agent.event("ended")["name"] == "none"
    assert (agents.work / "out").read_text() == "over\nbad\n"
    agent.run("none", "echo", "more", stdout="out")
    agent.event("ended")
    assert (agents.work / "out").read_text() == "over\nbad\nmore\n"
    assert "no such process was started with talk" in agent.refused("tell", name="holds", line="x")
    agent.ask("stop", names=["holds"])


def test_garbage_gets_an_error_without_a_number(agent: AgentProcess) -> None:
    for line in (
        b"nonsense",
        b"[]",
        b"{",
        b'{"do": "beat"}',
        b'{"do": "beat", "id": "1"}',
        b'{"do": "beat", "id": true}',
        b'{"do": "beat", "id": 1.5}',
        b"\xff\xfe\0",
        b"[" * 100_000,
        b'{"a": ' + b"1" * 10_000 + b"}",
    ):
        agent.write(line)
        agent.write(b"")
        answer = agent.reply(None)
        assert "\n" not in answer["error"]
        assert len(answer["error"]) < 300
    assert agent.ask("beat")


NO_REQUESTS: tuple[dict[str, Any], ...] = (
    {"do": None},
    {"do": ["beat"]},
    {"do": "beat", "more": 1},
    {"do": "write", "path": "x"},
    {"do": "write", "path": 5, "text": "x"},
    {"do": "write", "path": "x", "text": "\ud800"},
    {"do": "write", "path": "x\0", "text": "x"},
    {"do": "stop", "names": ["x"], "grace_s": 1e999},
    {"do": "stop", "names": "x"},
    {"do": "ports", "count": -1},
    {"do": "tail", "path": "none"},
    {"do": "tail", "path": ".", "lines": 5},
    {"do": "sums", "folder": "none"},
    {"do": "steps", "source": "none", "target": "x.parquet"},
    {"do": "tell", "name": "none", "line": "x"},
    {"do": "tell", "name": "none", "line": "x\ny"},
    {"do": "send", "address": "127.0.0.1", "port": 0},
    {"do": "look", "python": ["/bin/false"], "nics": "lo"},
)


def test_requests_that_are_none_get_an_error_with_their_number(agent: AgentProcess) -> None:
    assert "unknown request 'baet'; did you mean 'beat'?" in agent.refused("baet")
    for number, fields in enumerate(NO_REQUESTS, 1000):
        agent.write(json.dumps({"id": number, **fields}).encode())
        assert "error" in agent.reply(number), fields
    assert agent.ask("beat")
    assert agent.ask("quit") == {}
    assert agent.end() == (0, "")


ELSEWHERE = ("../x", "/etc/x", "a/../../x", "out/x", "out/deep/x", "", ".", "a/..", "lock", "live/x", "~/x")


@pytest.mark.parametrize("do", ["write", "remove"])
def test_nothing_outside_its_folder_is_changed(do: str, agent: AgentProcess, agents: AgentProcesses) -> None:
    outside = agents.work.parent / "outside"
    (outside / "deep").mkdir(parents=True)
    for name in ("x", "deep/x"):
        (outside / name).write_text("keep")
    (agents.work / "out").symlink_to(outside)
    for path in ELSEWHERE:
        complaint = agent.refused(do, path=path, **({"text": "new"} if do == "write" else {}))
        assert "is not inside" in complaint or "belongs to the agent" in complaint
    assert [path.read_text() for path in (outside / "x", outside / "deep/x")] == ["keep", "keep"]
    assert (agents.work / "lock").read_text().startswith('{"owner": "a test"')


def test_a_link_is_replaced_or_removed_and_not_followed(
    agent: AgentProcess, agents: AgentProcesses, tmp_path: Path
) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/x").write_text("keep")
    (agents.work / "a").symlink_to(tmp_path / "outside/x")
    (agents.work / "b").symlink_to(tmp_path / "outside")
    (agents.work / "c").symlink_to(tmp_path / "outside/x")
    (agents.work / "steps.jsonl").write_text("")
    agent.ask("write", path="a", text="new")
    agent.ask("remove", path="b")
    agent.ask("steps", source="steps.jsonl", target="c")
    assert (tmp_path / "outside/x").read_text() == "keep"
    assert (agents.work / "a").read_text() == "new"


def test_following_a_task(agent: AgentProcess, agents: AgentProcesses) -> None:
    def progress(**expected: Any) -> None:
        agent.event("progress", lambda found: expected.items() <= found.items())

    folder = agents.work / "runs/t"
    pid = agent.run("task", "sh", "-c", "read x; exit 0", talk=True)
    agent.ask("follow", name="task", folder="runs/t")
    progress(name="task", ready=False, steps=0, last=None, finished=None, alive=True)
    with (folder / "steps.jsonl").open("w") as stream:
        stream.write(json.dumps(STEP) + "\n" + json.dumps({**STEP, "step": 1})[:20])
        stream.flush()
        progress(steps=1, last=STEP)
        stream.write(json.dumps({**STEP, "step": 1})[20:] + "\n")
        stream.flush()
        progress(steps=2, last={**STEP, "step": 1}, ready=False)
    (folder / "part").write_text('{"pid": 1}')
    (folder / "part").rename(folder / "ready.json")
    progress(ready=True, finished=None)
    finished = {"task": "worker:0", "mono_ns": 1, "exit_code": 0, "message": "", "steps": 2, "kind": "ok"}
    (folder / "part").write_text(json.dumps(finished))
    (folder / "part").rename(folder / "finished.json")
    progress(finished=finished, alive=True)
    agent.ask("tell", name="task", line="go")
    progress(alive=False, steps=2)
    assert agent.event("ended")["pid"] == pid
    assert not [event for event in agent.events if "progress" in event]
    agent.ask("unfollow", name="task")
    agent.ask("unfollow", name="task")


def test_following_a_process_of_another_and_garbage(agent: AgentProcess, agents: AgentProcesses) -> None:
    other = subprocess.Popen(["sleep", "600"])
    try:
        folder = agents.work / "t"
        folder.mkdir()
        (folder / "steps.jsonl").write_text("garbage\n[1]\n" + json.dumps(STEP) + "\nmore garbage\n")
        (folder / "finished.json").write_text("{")
        agent.ask("follow", name="t", folder=str(folder), pid=other.pid)
        found = agent.event("progress")
        assert (found["steps"], found["alive"], found["ready"]) == (4, True, False)
        assert found["finished"]["kind"] == "unreadable"
        assert "cannot be read" in found["finished"]["message"]
        (folder / "steps.jsonl").write_text(json.dumps(STEP) + "\n")  # begun anew, and shorter
        agent.event("progress", lambda found: found["steps"] == 1 and found["last"] == STEP)
    finally:
        other.kill()
        other.wait()
    agent.event("progress", lambda found: not found["alive"])


def test_steps_in_parquet_are_those_of_the_lines(agent: AgentProcess, agents: AgentProcesses) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    steps = [
        {
            **{**STEP, "step": number, "end_mono_ns": 2**60 + number},
            **{"loss": None if number % 7 == 3 else number / 4, "accuracy": None if number % 2 else 0.5},
        }
        for number in range(9000)
    ]
    lines = [json.dumps(step) + "\n" for step in steps]
    (agents.work / "steps.jsonl").write_text("".join(lines) + lines[0][:-5])  # and half a line
    told = agent.ask("steps", source="steps.jsonl", target="steps/w.parquet", warmup=10)
    measured = {"measured_start_mono_ns": steps[10]["start_mono_ns"], "measured_end_mono_ns": steps[-1]["end_mono_ns"]}
    assert told == {"rows": 9000, **measured}
    table = pq.read_table(agents.work / "steps/w.parquet")
    assert table.to_pylist() == steps
    assert [(field.name, str(field.type)) for field in table.schema] == [
        (column.name, {"float32": "float"}.get(column.type, column.type)) for column in STEP_COLUMNS
    ]
    assert json.loads(table.schema.metadata[b"driple"])["schema_version"] == 1
    (agents.work / "steps.jsonl").write_text(lines[0] + '{"step": "x"}\n')
    assert "steps.jsonl:2: expected a step" in agent.refused("steps", source="steps.jsonl", target="x.parquet")
    assert not (agents.work / "x.parquet").exists()


def test_a_flood_neither_drowns_the_controller_nor_us(agent: AgentProcess) -> None:
    agent.run("flood", "sh", "-c", "yes 0123456789012345678901234567890123456789", talk=True)
    assert "lines were dropped" in agent.event("trouble", lambda trouble: trouble["name"] == "flood")["what"]
    assert agent.ask("beat")
    agent.ask("stop", names=["flood"])
    said = [event for event in agent.events if "said" in event]
    assert len(said) < 20_000
    peak = next(
        int(line.split()[1])
        for line in Path(f"/proc/{agent.process.pid}/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )
    assert peak < 80_000


def test_long_lines_and_bytes_that_are_no_text(agent: AgentProcess) -> None:
    script = "import os; os.write(1, b'x' * 1_500_000 + b'\\n' + b'\\xff\\x00\\n' + b'last')"
    agent.run("odd", sys.executable, "-c", script, talk=True)
    said = [agent.event("said") for _ in range(3)]
    assert said[0] == {"name": "odd", "line": "x" * 1_000_000, "cut": True}
    assert [one["line"] for one in said[1:]] == ["\ufffd\0", "last"]
    assert agent.event("ended")["exit_code"] == 0


def test_one_that_does_not_listen_is_told_no_more(agent: AgentProcess) -> None:
    agent.run("deaf", "sleep", "600", talk=True)
    numbers = [agent.send("tell", name="deaf", line="x" * 900_000) for _ in range(6)]
    answers = [agent.reply(number) for number in numbers]
    assert "ok" in answers[0]
    assert "does not read its stdin" in answers[-1]["error"]


def test_a_full_disk_is_an_answer_and_the_rest_goes_on(agents: AgentProcesses) -> None:
    def no_large_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))

    agent = agents.ready(preexec_fn=no_large_files)
    assert "File too large" in agent.refused("write", path="large", text="x" * 20_000)
    assert sorted(path.name for path in agents.work.iterdir()) == ["live", "lock"]
    pid = agent.run("task", "sleep", "600")
    assert agent.ask("stop", names=["task"])["ended"] == {"task": -15}
    assert agent.event("ended")["pid"] == pid
    assert not lives(pid)
    agent.ask("quit")
    agent.end()

    def no_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    full = agents.ready(preexec_fn=no_files)
    assert "File too large" in full.refused("start", name="task", argv=["true"], stderr="e")
    assert list((agents.work / "live").iterdir()) == []
    assert full.ask("remove", path="task.err") == {}


def test_bad_arguments_are_one_line(tmp_path: Path) -> None:
    for options in (
        ["--work", "x"],
        ["--work", "x", "--owner", "y", "--orphan", "-1"],
        ["--owner", "y", "--wait", "nan"],
    ):
        result = subprocess.run([*COMMAND, *options], capture_output=True, text=True, timeout=60, cwd=tmp_path)
        assert (result.returncode, len(result.stderr.splitlines())) == (2, 1)
    assert list(tmp_path.iterdir()) == []
