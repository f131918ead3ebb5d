"""Hosts with a fixed share of the processors: what a busy process gets, and that no control group is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from driple.orchestrator.lab.lab_client import Lab, living_labs

Remote = Callable[..., str]
CORES = 0.25

# Joins the groups of its host, then computes for two seconds and prints the share of a processor that it had.
BUSY = """
import os, sys, time
for file in sys.argv[1:]:
    open(file, 'w').write(str(os.getpid()))
begin, used = time.monotonic(), time.process_time()
while time.monotonic() < begin + 2:
    pass
print((time.process_time() - used) / (time.monotonic() - begin), *sorted(os.sched_getaffinity(0)))
"""


def start(**changes: object) -> Lab:
    lab = Lab.start(hosts=2, cores_per_host=CORES, **changes)  # type: ignore[arg-type]
    if lab.share_fault is not None:
        lab.close()
        pytest.skip(lab.share_fault)
    return lab


@pytest.fixture(scope="module")
def shared_lab() -> Iterator[Lab]:
    with start() as lab:
        yield lab


def within(seconds: float, true: Callable[[], object]) -> bool:
    """Whether it becomes true in time."""
    deadline = time.monotonic() + seconds
    while not true():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def busy(lab: Lab, remote: Remote, name: str, wait: bool = True) -> str:
    return remote(lab, name, f'{sys.executable} -c "{BUSY}" {" ".join(lab.share_files(name))}', wait)


def groups_of(lab: Lab) -> list[Path]:
    return [Path(file).parent for name in lab.names for file in lab.share_files(name)]


def test_a_busy_process_has_the_share_of_its_host(shared_lab: Lab, remote: Remote) -> None:
    answers = [busy(shared_lab, remote, name, wait=False) for name in shared_lab.names]
    cores = set()
    for name, answer in zip(shared_lab.names, answers, strict=True):
        share, *processors = answer().split()  # type: ignore[operator]
        # Other work on the machine can only take from it; without the share it would be up to four times as much.
        assert float(share) < 1.3 * CORES
        assert processors == [str(shared_lab.shares[name].core)]
        cores.add(processors[0])
    assert len(cores) == min(2, len(os.sched_getaffinity(0)))


def test_what_does_not_join_stays_outside(shared_lab: Lab, remote: Remote) -> None:
    assert shared_lab.folder.name not in remote(shared_lab, "lab1", "cat /proc/self/cgroup")


def test_a_lab_without_a_share_has_no_groups() -> None:
    with Lab.start(hosts=1) as lab:
        assert (lab.shares, lab.share_files("lab1"), lab.share_fault) == ({}, (), None)


def test_the_groups_end_with_the_lab(remote: Remote) -> None:
    lab = start()
    groups = groups_of(lab)
    assert groups and all(group.is_dir() for group in groups)
    remote(lab, "lab1", f"setsid sh -c 'echo $$ > {lab.share_files('lab1')[0]}; exec sleep 300' >/dev/null 2>&1 & echo")
    lab.close()
    assert not [group for group in groups if group.parent.exists()]


def test_the_groups_of_a_lab_whose_supervisor_was_killed_go_with_its_folder() -> None:
    name = f"test-share-{os.getpid()}"
    lab = start(detached=True, name=name)
    groups = groups_of(lab)
    try:
        os.kill(lab.supervisor_pid, signal.SIGKILL)
        assert within(10, lambda: name not in living_labs())  # the next command of any lab looks too
        assert not [group for group in groups if group.parent.exists()]
    finally:
        lab.close()


def test_a_user_without_groups_of_his_own_has_a_lab_without_shares(plain_user: object) -> None:
    program = (
        "from driple.orchestrator.lab.lab_client import Lab\n"
        "with Lab.start(hosts=1, cores_per_host=0.25) as lab: print(lab.share_fault, lab.shares, lab.names)\n"
    )
    done: subprocess.CompletedProcess[str] = plain_user.run(["-c", program])  # type: ignore[attr-defined]
    (line,) = done.stdout.splitlines() or [done.stderr]
    assert line.startswith("this user cannot give hosts a share of the processors (/sys/fs/cgroup/"), line
    assert line.endswith("; run as root {} ('lab1',)")
