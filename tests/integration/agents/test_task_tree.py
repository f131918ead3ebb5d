"""CPU time and memory of real process trees whose work is known."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from driple.agents.sources.process_tree import ProcessTree
from driple.agents.sources.task_usage import TaskMemorySource, TaskSource

pytestmark = pytest.mark.integration

Start = Callable[..., "subprocess.Popen[str]"]
WaitFor = Callable[..., Any]

BURN = "import time\ndef burn(s):\n end = time.process_time() + s\n while time.process_time() < end: pass\n"
SECOND = 1_000_000_000


def watch(tree: ProcessTree, process: subprocess.Popen[str]) -> list[int]:
    """CPU time of the tree over the life of a process, which is not collected before the end."""
    seen = []
    end = time.monotonic() + 60
    while not tree.ended() and time.monotonic() < end:
        tree.look()
        seen.append(tree.cpu_ns())
        time.sleep(0.005)
    for _ in range(20):
        tree.look()
        seen.append(tree.cpu_ns())
    process.wait(30)
    return seen


def opened(process: subprocess.Popen[str]) -> ProcessTree:
    tree = ProcessTree(process.pid)
    tree.open()
    return tree


def go(process: subprocess.Popen[str], until: str) -> str:
    """Lets a process that waits for a line go on, and gives its next line, which begins as expected."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    line = process.stdout.readline()
    assert line.startswith(until), line
    return line[len(until) :]


def collected_ns() -> float:
    """CPU time of all that this process has waited for, with theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) * SECOND


# Forks children that burn and are waited for; the last line says what all of it has used by then.
FORKS = BURN + (
    "import os, sys\n"
    "def child(s, wait=True):\n"
    " pid = os.fork()\n"
    " if pid == 0:\n  burn(s); os._exit(0)\n"
    " if wait: os.waitpid(pid, 0)\n"
    "def say(word): print(word, sum(os.times()[:4]), flush=True); sys.stdin.readline()\n"
)


def test_a_burner_and_its_threads(start: Start) -> None:
    script = BURN + (
        "import threading\nthreads = [threading.Thread(target=burn, args=(0.4,)) for _ in range(2)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "print(time.process_time())"
    )
    process = start(sys.executable, "-c", script)
    tree = opened(process)
    seen = watch(tree, process)
    assert process.stdout is not None
    used = float(process.stdout.read()) * SECOND
    assert seen == sorted(seen)
    # The clock steps by the kernel's tick, and start and end of the interpreter are on it too.
    assert 0.9 * used < seen[-1] < used + SECOND
    tree.close()


def test_children_count_while_they_live_and_after(start: Start) -> None:
    child = BURN + "burn(0.2)"
    script = BURN + (
        "import subprocess, sys, time\ntime.sleep(0.3)\n"
        f"for _ in range(3): subprocess.run([sys.executable, '-c', {child!r}])\n"
        "time.sleep(0.3)"
    )
    process = start(sys.executable, "-c", script)
    tree = opened(process)
    seen = watch(tree, process)
    assert seen == sorted(seen)
    assert 0.6 * SECOND < seen[-1] < 6 * SECOND
    tree.close()


def test_children_that_come_and_go_between_two_looks_are_found_with_their_parents(start: Start) -> None:
    child = BURN + "burn(0.3)"
    script = (
        f"import subprocess, sys, time\nsys.stdin.readline()\nsubprocess.run([sys.executable, '-c', {child!r}])\n"
        "print('done', flush=True); sys.stdin.readline()"
    )
    process = start(sys.executable, "-c", script)
    tree = opened(process)
    before = tree.cpu_ns()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"
    for _ in range(40):
        tree.look()
    after = tree.cpu_ns()
    assert 0.25 * SECOND < after - before < 5 * SECOND
    assert tree.pids == [process.pid]
    process.stdin.close()
    process.wait(30)
    tree.close()


def test_a_tree_that_never_stops_forking_is_right_all_the_time(start: Start) -> None:
    # Children always wait to be looked at: each look is followed by new ones before the next.
    script = FORKS + "say('ready')\nwhile True:\n for _ in range(5): child(0.02)\n say('used')"
    process = start(sys.executable, "-c", script)
    assert process.stdout is not None
    process.stdout.readline()
    tree = opened(process)
    for _ in range(6):
        used = float(go(process, "used")) * SECOND
        tree.look()
        # What the parent itself says is in units of 10 ms, and so is what it has of its children.
        assert abs(tree.cpu_ns() - used) < 0.08 * SECOND
    assert 0.4 * SECOND < tree.unseen_ns <= tree.cpu_ns()
    assert not tree.lower_bound
    tree.close()


@pytest.mark.parametrize("read_again", [False, True])
def test_at_the_stop_all_is_known_of_a_task_that_was_ours(start: Start, read_again: bool) -> None:
    before = collected_ns()
    process = start(sys.executable, "-c", FORKS + "say('ready')\nfor _ in range(10): child(0.03)\nburn(0.1)")
    assert process.stdout is not None
    process.stdout.readline()
    source = TaskSource(ProcessTree(process.pid))
    source.open()
    row: list[Any] = [None]
    source.read(time.monotonic_ns(), row, 0)
    source.extra()  # as the loop does after a read
    assert process.stdin is not None
    process.stdin.write("\n")
    process.stdin.flush()
    process.wait(60)  # as the sampler does at the end of the command: from here on nothing in /proc tells of it
    if read_again:
        source.read(time.monotonic_ns(), row, 0)
        source.extra()
        assert source.extra(last=True) == ()
    else:
        assert source.extra() == ()
        ((_, (row[0],)),) = source.extra(last=True)
    assert row[0] > 0.4 * SECOND
    assert abs(row[0] - (collected_ns() - before)) < 0.03 * SECOND
    assert source.quality()["unseen_children_s"] > 0.25
    assert source.quality()["lower_bound"] is False
    source.close()


def test_old_time_of_a_tree_that_is_idle_now_is_no_step(start: Start) -> None:
    # P -> C, and C has waited for a child of its own long before anybody looks.
    script = FORKS + "if os.fork() == 0:\n child(0.4)\n say('ready')\n child(0)\n say('again')\nos.wait()"
    process = start(sys.executable, "-c", script)
    assert process.stdout is not None
    process.stdout.readline()
    tree = opened(process)
    before = tree.cpu_ns()
    assert before > 0.35 * SECOND
    assert len(tree.pids) == 2
    go(process, "again")  # a child that uses nothing, so that there is something to look for
    for _ in range(5):
        tree.look()
    assert tree.cpu_ns() - before < 0.1 * SECOND
    assert tree.unseen_ns < 0.1 * SECOND
    assert not tree.lower_bound
    assert process.stdin is not None
    process.stdin.close()
    process.wait(30)
    tree.close()


def test_an_orphan_hides_nothing_that_others_use(start: Start, wait_for: WaitFor) -> None:
    script = FORKS + (
        "end_middle, go, done, end = (os.pipe() for _ in range(4))\n"
        "if os.fork() == 0:\n"
        " if os.fork() == 0:\n"
        "  os.write(done[1], b'x'); os.read(go[0], 1)\n"
        "  burn(0.5); os.write(done[1], b'x'); os.read(end[0], 1); os._exit(0)\n"
        " os.read(end_middle[0], 1); os._exit(0)\n"
        "os.read(done[0], 1); say('ready')\n"
        "os.write(end_middle[1], b'x'); os.wait(); say('orphaned')\n"
        "os.write(go[1], b'x'); os.read(done[0], 1); say('burnt')\n"
        "os.write(end[1], b'x'); say('ended')\n"
        "for _ in range(15): child(0.03)\n"
        "say('used')"
    )
    process = start(sys.executable, "-c", script)
    assert process.stdout is not None
    process.stdout.readline()
    tree = opened(process)
    go(process, "orphaned")
    tree.cpu_ns()
    tree.look()
    assert tree.size == 2
    go(process, "burnt")
    assert tree.cpu_ns() > 0.45 * SECOND
    go(process, "ended")
    wait_for(lambda: tree.cpu_ns() and tree.pids == [process.pid])
    tree.look()
    used = float(go(process, "used"))
    tree.look()
    assert abs(tree.cpu_ns() - (0.5 + used) * SECOND) < 0.1 * SECOND
    tree.close()


def test_children_that_nobody_waits_for_are_kept_hide_nothing_and_make_it_a_lower_bound(
    start: Start, wait_for: WaitFor
) -> None:
    script = FORKS + (
        "import signal\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "done, end = os.pipe(), os.pipe()\n"
        "if os.fork() == 0:\n"
        " burn(0.5); os.write(done[1], b'x'); os.read(end[0], 1); os._exit(0)\n"
        "os.read(done[0], 1); say('ready')\n"
        "os.write(end[1], b'x'); say('ended')\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_DFL)\n"
        "for _ in range(15): child(0.03)\n"
        "say('used')"
    )
    process = start(sys.executable, "-c", script)
    assert process.stdout is not None
    process.stdout.readline()
    tree = opened(process)
    assert tree.size == 2
    at_first = tree.lower_bound
    go(process, "ended")
    wait_for(lambda: tree.cpu_ns() and tree.pids == [process.pid])
    tree.look()
    assert (at_first, tree.lower_bound) == (False, True)
    used = float(go(process, "used"))
    tree.look()
    assert abs(tree.cpu_ns() - (0.5 + used) * SECOND) < 0.1 * SECOND
    tree.close()


def test_a_tree_is_found_whole_when_it_already_stands(start: Start, wait_for: WaitFor) -> None:
    process = start("sh", "-c", "sh -c 'sleep 100 & sleep 100; true'; true")
    tree = opened(process)

    def complete() -> bool:
        tree.close()
        tree.__init__(process.pid)  # type: ignore[misc]
        tree.open()
        return len(tree.pids) == 4

    wait_for(complete)
    members = tree.pids
    assert (tree.rss_bytes() or 0) > 4 * 100_000
    assert not tree.ended()
    for pid in members:
        os.kill(pid, 9)
    wait_for(tree.ended)
    tree.close()


def test_new_grandchildren_join_and_those_who_lose_their_parent_stay(start: Start, wait_for: WaitFor) -> None:
    process = start("sh", "-c", "read x; sh -c 'sleep 100 & echo $!; read y'; echo over; read z")
    tree = opened(process)
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    sleeper = int(process.stdout.readline())
    try:

        def seen() -> bool:
            tree.look()
            return sleeper in tree.pids

        wait_for(seen)
        assert len(tree.pids) == 3
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "over\n"
        tree.cpu_ns()
        for _ in range(20):
            tree.look()
        assert sorted(tree.pids) == sorted([process.pid, sleeper])
    finally:
        os.kill(sleeper, 9)
    wait_for(lambda: tree.cpu_ns() >= 0 and tree.pids == [process.pid])
    tree.close()


def test_the_sources_fill_their_slots_and_tell_the_end(start: Start, wait_for: WaitFor) -> None:
    process = start("sleep", "100")
    tree = ProcessTree(process.pid)
    cpu, memory = TaskSource(tree), TaskMemorySource(tree, 100)
    cpu.open()
    memory.open()
    row: list[Any] = [None, None]
    cpu.read(time.monotonic_ns(), row, 0)
    assert row[0] >= 0

    def resident() -> int:
        memory.read(time.monotonic_ns(), row, 1)
        return int(row[1] or 0)

    wait_for(lambda: resident() > 100_000)  # it has only just become `sleep`
    assert memory.ended() is None
    process.kill()

    def over() -> str | None:
        memory.read(time.monotonic_ns(), [None], 0)
        return memory.ended()

    assert wait_for(over) == "watched process ended"
    process.wait(30)
    cpu.read(time.monotonic_ns(), row, 0)  # of a process that is gone for good: the counter stays
    assert row[0] >= 0
    row = [None]
    memory.read(time.monotonic_ns(), row, 0)
    assert row == [None]
    cpu.close()


def test_absurd_steps_of_the_counter_are_counted_and_not_bent() -> None:
    class FakeTree(ProcessTree):
        used = 0

        def cpu_ns(self) -> int:
            return self.used

    tree = FakeTree()
    source = TaskSource(tree)
    processors = os.cpu_count() or 1
    row: list[Any] = [None]
    for t, used in ((1000, 0), (2000, 1000), (3000, 1000 + 1001 * processors), (4000, 1000 + 1001 * processors)):
        tree.used = used
        source.read(t, row, 0)
        assert row == [used]
    assert source.quality()["steps_over_all_processors"] == 1
