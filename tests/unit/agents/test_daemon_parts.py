"""The parts of an agent that can be seen alone: lines, queues, timers, families, work aside, what a task left."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driple.agents.daemon.event_loop import READ, Loop
from driple.agents.daemon.forked_call import ForkedCalls, Outcome
from driple.agents.daemon.handlers import _HANDLERS
from driple.agents.daemon.line_streams import Line, LineBuffer, OutputQueue
from driple.agents.daemon.procfs import Family, Process, descendants, process, processes, token_of
from driple.agents.daemon.task_progress import Task
from driple.agents.daemon.work_dir import WorkDir, tail
from driple.agents.hostinfo.free_ports import _candidates, free_ports
from driple.agents.hostinfo.software import python_versions
from driple.contracts.errors import BadInput
from driple.contracts.formats.task_files import FINISHED_FILE, LOST_PEER, STEPS_FILE, UNREADABLE
from driple.contracts.protocol import events, requests
from driple.contracts.protocol.message import encode, read_tagged
from driple.contracts.strategy import BACKENDS, FRAMEWORKS
from driple.workloads.runtime.task_output import TaskOutput


@pytest.fixture
def loop() -> Iterator[Loop]:
    found = Loop()
    yield found
    found.close()


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    for fd in ends:
        os.close(fd)


@given(st.lists(st.binary(max_size=30).map(lambda data: data.replace(b"a", b"\n"))), st.integers(1, 40))
def test_lines_are_those_of_the_whole_however_it_is_cut(chunks: list[bytes], limit: int) -> None:
    lines = LineBuffer(limit)
    found = [line for chunk in chunks for line in lines.feed(chunk)] + lines.rest()
    *whole, rest = b"".join(chunks).split(b"\n")
    expected = [Line(line[:limit], len(line) > limit) for line in [*whole, *([rest] if rest else [])]]
    assert found == expected


def test_a_line_without_end_is_not_kept() -> None:
    lines = LineBuffer(1000)
    assert lines.feed(b"x" * 900) == []
    assert lines.feed(b"x" * 200) == [Line(b"x" * 1000, True)]
    for _ in range(100):
        assert lines.feed(b"x" * 1000) == []
    assert len(lines._held) == 0
    assert lines.feed(b"x\nnext\n") == [Line(b"next", False)]


def test_an_outlet_waits_for_its_reader_but_not_for_ever(loop: Loop, pipe: tuple[int, int]) -> None:
    lost: list[OSError | None] = []
    outlet = OutputQueue(loop, pipe[1], 300_000, lost.append)
    sent = bytes(range(256)) * 1000
    outlet.put(sent)
    assert 0 < outlet.waiting < len(sent)
    received = b""
    while len(received) < len(sent):
        received += os.read(pipe[0], 65536)
        loop.turn(0.0)
    assert received == sent
    assert (outlet.waiting, lost) == (0, [])
    for _ in range(10):
        outlet.put(sent)
    assert (lost, outlet.open, outlet.waiting) == ([None], False, 0)


def test_an_outlet_says_once_that_its_reader_is_gone(loop: Loop) -> None:
    read, write = os.pipe()
    os.close(read)
    lost: list[OSError | None] = []
    outlet = OutputQueue(loop, write, 1000, lost.append)
    outlet.put(b"x")
    outlet.put(b"y")
    assert [type(error) for error in lost] == [BrokenPipeError]
    os.close(write)


def test_timers_come_in_their_order_and_not_when_cancelled(loop: Loop) -> None:
    came: list[str] = []
    loop.after(0.02, lambda: came.append("second"))
    loop.after(0.0, lambda: came.append("first"))
    loop.after(0.01, lambda: came.append("never")).cancel()
    while len(came) < 2:
        loop.turn()
    assert came == ["first", "second"]


def test_cancelled_timers_do_not_pile_up(loop: Loop) -> None:
    kept = loop.after(1000.0, lambda: None)
    for _ in range(10_000):
        loop.after(1000.0, lambda: None).cancel()
    assert len(loop._timers) < 200
    assert kept in [entry[2] for entry in loop._timers]


def test_a_descriptor_that_another_call_took_off_is_not_called(loop: Loop, pipe: tuple[int, int]) -> None:
    other = os.pipe()
    called: list[int] = []

    def one_of(mine: int, others: int) -> None:
        called.append(mine)
        loop.forget(others)

    loop.watch(pipe[0], READ, lambda: one_of(pipe[0], other[0]))
    loop.watch(other[0], READ, lambda: one_of(other[0], pipe[0]))
    for fd in (pipe[1], other[1]):
        os.write(fd, b"x")
    loop.turn()
    assert len(called) == 1
    for fd in other:
        os.close(fd)


def test_a_family_is_its_session_its_descendants_and_no_stranger() -> None:
    me = os.getpid()
    table = {
        me: Process(1, me, 1, False),
        100: Process(me, 100, 50, False),  # the head
        101: Process(100, 100, 51, False),
        102: Process(1, 100, 52, False),  # of the session alone
        103: Process(101, 103, 53, False),  # a descendant with a session of its own
        104: Process(103, 103, 54, True),  # dead
        200: Process(me, 200, 50, False),  # another child
        300: Process(1, 300, 9, False),
    }
    assert Family(100, 50).members(table) == {100, 101, 102, 103}
    assert Family(100, 49).members(table) == set()  # the number is another's by now
    del table[100]
    assert Family(100, 50).members(table) == {101, 102, 103}
    assert descendants(table, [me]) == {me, 200}


def test_the_table_of_processes_is_the_kernels() -> None:
    me = process(os.getpid())
    assert me is not None
    assert (me.parent, me.session, me.dead) == (os.getppid(), os.getsid(0), False)
    assert processes()[os.getpid()] == me
    assert process(2**22 + 1) is None
    assert token_of(os.getpid()) is None


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Numbers of the processes that were forked; they are waited for, as an agent's reaper does."""
    pids: list[int] = []
    fork = os.fork

    def noted() -> int:
        pid = fork()
        if pid:
            pids.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", noted)
    yield pids
    for pid in pids:
        os.waitpid(pid, 0)


def run_forked(loop: Loop, work: Any, limit_s: float = 60.0) -> Outcome:
    found: list[Outcome] = []
    ForkedCalls(loop).run(work, limit_s, found.append)
    while not found:
        loop.turn()
    return found[0]


def test_a_forked_call_gives_its_value_or_its_reason_and_never_hangs(
    loop: Loop, tmp_path: Path, forked: list[int]
) -> None:
    def fail() -> dict[str, Any]:
        raise BadInput("no such thing")

    assert run_forked(loop, lambda: {"x": "y" * 200_000}) == Outcome({"x": "y" * 200_000})
    assert run_forked(loop, fail) == Outcome(None, "no such thing")
    assert run_forked(loop, lambda: {"x": (tmp_path / "none").read_text()}).error.endswith("No such file or directory")
    assert run_forked(loop, lambda: {"x": 1 // 0}).error.startswith("ZeroDivisionError: ")
    assert "without an answer" in run_forked(loop, lambda: os._exit(3)).error
    assert run_forked(loop, lambda: time.sleep(600), 0.2) == Outcome(None, "took longer than 0.2 s")
    assert os.waitpid(forked.pop(), 0)[1] == signal.SIGKILL


def test_a_forked_call_holds_nothing_of_ours_open(loop: Loop, pipe: tuple[int, int], forked: list[int]) -> None:
    held = run_forked(loop, lambda: {"fds": len([fd for fd in range(3, 100) if Path(f"/proc/self/fd/{fd}").exists()])})
    assert held.value == {"fds": 1}  # by which it answers
    assert len(forked) == 1


@given(st.lists(st.integers(0, 12), max_size=20))
def test_a_task_is_as_far_as_its_whole_lines_say(cuts: list[int]) -> None:
    whole = b"".join(b'{"step": %d}\n' % number for number in range(10))
    with tempfile.TemporaryDirectory() as folder:
        task = Task("t", Path(folder), lambda: True)
        at = 0
        with Path(folder, STEPS_FILE).open("wb", buffering=0) as stream:
            for size in [*cuts, len(whole)]:
                stream.write(whole[at : at + size])
                at += size
                news = task.news()
                written = whole[:at].count(b"\n")
                if news is not None:
                    assert news.steps == written
                    assert news.last == ({"step": written - 1} if written else None)
        assert task.news() is None
        assert written == 10


def test_a_pipe_in_the_place_of_a_marker_does_not_hold_us(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FINISHED_FILE)
    news = Task("t", tmp_path, lambda: True).news()
    assert news is not None and news.finished is not None
    assert news.finished.kind == UNREADABLE
    with pytest.raises(OSError):
        tail(tmp_path / FINISHED_FILE, 5)


def test_progress_is_read_from_the_files_that_a_task_writes(tmp_path: Path) -> None:
    output, task = TaskOutput(tmp_path, "worker:1"), Task("t", tmp_path, lambda: True)
    output.ready()
    output.step(0, 5, 10, 20, 0.5)
    first = task.news()
    assert first is not None
    assert (first.ready, first.steps, first.finished) == (True, 1, None)
    assert first.last == {
        "step": 0,
        "global_step": 5,
        "start_mono_ns": 10,
        "end_mono_ns": 20,
        "loss": 0.5,
        "accuracy": None,
    }
    output.finished(1, "ps:0 is gone", LOST_PEER)
    output.close()
    last = task.news()
    assert last is not None and last.finished is not None
    assert (last.finished.exit_code, last.finished.kind, last.finished.steps) == (1, LOST_PEER, 1)
    received = read_tagged(events.EVENTS, json.loads(last.to_line()))
    assert received == last


def test_tail_reads_no_more_than_the_end(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_bytes(b"".join(b"line %d\n" % number for number in range(20_000)) + b"\xff no end")
    assert tail(path, 2) == ["line 19999", "\ufffd no end"]
    assert tail(path, 0) == []
    found = tail(path, 100_000)
    assert 1000 < len(found) < 20_000
    assert found[0].startswith("line ")
    path.write_bytes(b"")
    assert tail(path, 5) == []


def test_links_in_a_circle_lead_nowhere(tmp_path: Path) -> None:
    work = WorkDir(str(tmp_path))
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises((BadInput, OSError)):
        work.write("a/x", "text")
    work.remove("a")
    assert [path.name for path in tmp_path.iterdir()] == ["b"]


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        ("32768\t60999\n", (20_000, 32_000)),
        ("30000 60999", (20_000, 30_000)),
        ("1024 60999", (61_000, 65_536)),
        ("1024 65535", (20_000, 20_000)),
        ("nonsense", (20_000, 32_000)),
    ],
)
def test_ports_lie_where_no_outgoing_connection_is(
    kernel: str, expected: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "range").write_text(kernel)
    monkeypatch.setattr(sys.modules[free_ports.__module__], "_RANGE", tmp_path / "range")
    assert _candidates() == expected
    assert len(set(free_ports(10))) == 10


@pytest.mark.parametrize(
    ("asked", "complaint"),
    [
        ({"name": "a", "argv": ["x"]}, "start: key 'stderr' is missing"),
        ({"name": "a", "argv": ["x"], "stderr": "e", "nam": 1}, "start: unknown key 'nam'; did you mean 'name'?"),
        ({"name": "a", "argv": ["x", 1], "stderr": "e"}, "start.argv[1]: expected str, got 1"),
        ({"name": "a", "argv": "x", "stderr": "e"}, "start.argv: expected list, got 'x'"),
        ({"name": "a", "argv": ["x"], "stderr": "e", "env": {"A": None}}, "start.env.A: expected str, got None"),
        ({"name": "a", "argv": ["x"], "stderr": "e", "talk": 1}, "start.talk: expected bool, got 1"),
        ({"name": "a", "argv": ["x"], "stderr": "e", "limit_s": 0}, "start: limit_s: expected 0.001 to 1e+07"),
        ({"name": "a", "argv": ["x"], "stderr": None}, "start.stderr: expected str, got None"),
    ],
)
def test_a_request_is_read_strictly(asked: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadInput) as caught:
        requests.Start.read(asked, "start")
    assert str(caught.value).startswith(complaint)


def test_a_request_has_its_defaults_and_its_own_values() -> None:
    one = requests.Start.read({"name": "a", "argv": ["x"], "stderr": "e", "limit_s": 3, "stdout": None}, "start")
    assert (one.argv, one.limit_s, one.env, one.talk) == (("x",), 3.0, None, False)
    other = requests.Start.read({"name": "b", "argv": ["x"], "stderr": "e", "env": {"A": "b"}, "talk": True}, "start")
    assert (other.env, other.talk, other.limit_s) == ({"A": "b"}, True, requests.DAY_S)
    assert one.name == "a"


def test_every_request_has_a_handler() -> None:
    assert {kind for kind, _ in _HANDLERS.values()} == set(requests.Request.__subclasses__())
    for name, (kind, _) in _HANDLERS.items():
        assert kind.__name__.lower() == name.replace("_", "")


def test_a_request_comes_back_from_its_line_as_it_was() -> None:
    sent = requests.Start(name="a", argv=("x", "y"), stderr="e", env={"A": "b"}, limit_s=2.0)
    value = json.loads(sent.to_line(7))
    assert (value.pop("do"), value.pop("id")) == ("start", 7)
    assert requests.Start.read(value, "start") == sent
    answer = requests.HostInfo(
        nics={"lo": requests.NicInfo(up=True, speed_mbit=None, addresses=("::1",), mtu=1), "none0": None},
        interfaces=("lo",),
        gpus=(requests.GpuInfo(index=0, uuid="GPU-1", name=None),),
        python=None,
        disk_free_bytes=5,
        python_error="not found",
    )
    assert requests.Look().read_answer(json.loads(encode(answer)), "look") == answer
    with pytest.raises(BadInput, match=r"ports: key 'ports' is missing"):
        requests.Ports(count=1).read_answer({}, "ports")


def test_events_come_back_from_their_lines_and_others_are_none() -> None:
    for event in (events.Said(name="a", line="ü"), events.Failed(why="busy"), events.Trouble(name="a", what="b")):
        assert read_tagged(events.EVENTS, json.loads(event.to_line())) == event
    assert read_tagged(events.EVENTS, {"bring": "agent"}) is None
    with pytest.raises(BadInput, match="ended: key 'pid' is missing"):
        read_tagged(events.EVENTS, {"ended": {"name": "a", "exit_code": 0, "mono_ns": 1}})


def test_versions_are_those_of_the_packages_of_every_framework() -> None:
    found = python_versions([sys.executable]).packages
    assert set(found) == {"driple", "numpy"}.union(
        *(part.packages for part in (*FRAMEWORKS.values(), *BACKENDS.values()))  # type: ignore[attr-defined]
    )
    assert found["driple"] and found["numpy"]
