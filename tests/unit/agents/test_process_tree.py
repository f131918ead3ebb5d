"""How CPU time is counted where real processes cannot be made to show it: races, and numbers that are used again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from driple.agents.sources.process_tree import ProcessTree, cpu_clock

MS = 1_000_000


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """Pid to CPU time, in place of the kernel's; a pid that is not in it has the kernel's own."""
    times: dict[int, int] = {}
    real: Callable[[int], int] = time.clock_gettime_ns

    def read(clock_id: int) -> int:
        used = times.get(~(clock_id >> 3))
        if used is None:
            return real(clock_id)
        if used < 0:
            raise OSError(22, "Invalid argument")
        return used

    monkeypatch.setattr(time, "clock_gettime_ns", read)
    return times


def test_the_counter_stays_when_a_number_is_another_process_s(clock: dict[int, int]) -> None:
    clock[os.getpid()] = 500_000 * MS
    tree = ProcessTree(os.getpid())
    tree.open()
    before = tree.cpu_ns()
    assert before >= 500_000 * MS
    clock[os.getpid()] = 3 * MS
    assert tree.cpu_ns() == before
    assert os.getpid() not in tree.pids
    assert tree.cpu_ns() == before
    tree.close()


def test_a_child_that_could_not_be_seen_at_once_is_looked_for_again(clock: dict[int, int]) -> None:
    tree = ProcessTree(os.getpid())
    tree.open()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        clock[child.pid] = -1
        tree.look()
        assert child.pid not in tree.pids
        del clock[child.pid]
        tree.look()
        assert child.pid in tree.pids
    tree.close()


def test_who_waited_for_a_parent_that_is_gone_too_has_the_time_of_both(clock: dict[int, int]) -> None:
    tree = ProcessTree(1)
    clock.update({1: 0, 2: 70 * MS, 3: 50 * MS})
    for pid, parent in ((1, 0), (2, 1), (3, 2)):
        tree._admit(pid, parent)
    assert tree.cpu_ns() == 120 * MS
    root = tree._members[1]
    clock.update({2: -1, 3: -1})
    assert tree.cpu_ns() == 120 * MS
    assert root.owed_ns == 120 * MS
    tree._collect(root, 110 * MS, root.owed_ns)  # rounded down
    assert (tree.cpu_ns(), root.owed_ns, tree.lower_bound) == (120 * MS, 10 * MS, False)
    tree._collect(root, 150 * MS, root.owed_ns)
    assert (tree.cpu_ns(), tree.unseen_ns) == (150 * MS, 30 * MS)


def test_one_that_ends_while_parents_are_read_is_not_counted_twice(clock: dict[int, int]) -> None:
    tree = ProcessTree(1)
    clock.update({1: 0, 2: 90 * MS})
    tree._admit(1, 0)
    tree._admit(2, 1)
    root = tree._members[1]
    due = root.owed_ns  # its parent's figure was read before it ended, or after: both must come out alike
    clock[2] = -1
    assert tree.cpu_ns() == 90 * MS
    tree._collect(root, 0, due)
    assert (tree.cpu_ns(), root.owed_ns, tree.lower_bound) == (90 * MS, 90 * MS, False)
    tree._collect(root, 90 * MS, root.owed_ns)
    assert (tree.cpu_ns(), root.owed_ns, tree.unseen_ns) == (90 * MS, 0, 0)


def test_clock_ids_are_the_kernel_s() -> None:
    assert time.clock_gettime_ns(cpu_clock(os.getpid())) > 0
