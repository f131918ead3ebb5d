"""However a lab ends, nothing of it is left: no process, no namespace, no interface, no mount, no file."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from driple.contracts.errors import RunFailed
from driple.orchestrator.lab.lab_client import Lab, LabUnavailableError, living_labs

Remote = Callable[..., str]

OWNER = """
import os, sys, time
from driple.orchestrator.lab.lab_client import Lab
lab = Lab.start(hosts=2)
child = os.fork()  # inherits whatever the owner has open
if child == 0:
    time.sleep(60)
    os._exit(0)
print(lab.folder, lab.supervisor_pid, child, flush=True)
time.sleep(60)
"""


@pytest.fixture
def owner() -> Iterator[tuple[subprocess.Popen[str], Path, int]]:
    """Another process that owns a lab: itself, the lab's folder, its supervisor."""
    process = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    folder, supervisor, child = process.stdout.readline().split()
    yield process, Path(folder), int(supervisor)
    with suppress(ProcessLookupError):
        os.kill(int(child), signal.SIGKILL)
    process.kill()
    process.wait()
    process.stdout.close()


def busy(lab: Lab, remote: Remote) -> None:
    """A process that nobody waits for, on each host."""
    for name in lab.names:
        remote(lab, name, "setsid nohup sleep 300 >/dev/null 2>&1 & echo")


def test_closed_in_order(remote: Remote, footprint: Any) -> None:
    with Lab.start(hosts=2) as lab:
        busy(lab, remote)
        trace = footprint(lab.supervisor_pid, lab.folder)
        assert trace.remains()
    assert not trace.remains()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_owner_ended_by(
    number: int, owner: tuple[subprocess.Popen[str], Path, int], footprint: Any, remote: Remote
) -> None:
    process, folder, supervisor = owner
    busy(Lab(folder), remote)
    trace = footprint(supervisor, folder)
    process.send_signal(number)
    process.wait(10)
    assert trace.gone(), trace.remains()


def test_owner_killed_while_the_lab_comes_up() -> None:
    for delay_s in (0.15, 0.25, 0.35):
        process = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.DEVNULL)
        time.sleep(delay_s)
        process.kill()
        process.wait()
        mark = f"run-{process.pid}-"
        deadline = time.monotonic() + 10
        while (left := _left(mark)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not left


def _left(mark: str) -> list[str]:
    """Labs, and processes, that have that text in their names or command lines."""
    found = [name for name in living_labs() if mark in name]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes()
            if mark.encode() in words:
                found.append(words.decode(errors="replace"))
    return found


def test_keeper_killed(remote: Remote, footprint: Any) -> None:
    lab = Lab.start(hosts=2)
    busy(lab, remote)
    trace = footprint(lab.supervisor_pid, lab.folder)
    os.kill(lab.supervisor_pid, signal.SIGKILL)
    with pytest.raises(RunFailed, match="gone|ended"):
        for _ in range(200):
            lab.describe()
            time.sleep(0.02)
    lab.close()
    assert trace.gone(), trace.remains()


def test_keeper_of_a_detached_lab_killed(footprint: Any) -> None:
    name = f"test-{os.getpid()}"
    lab = Lab.start(hosts=1, detached=True, name=name)
    try:
        assert name in living_labs()
        trace = footprint(lab.supervisor_pid, lab.folder)
        os.kill(lab.supervisor_pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while name in living_labs() and time.monotonic() < deadline:  # looking is what clears it away
            time.sleep(0.05)
        assert trace.gone(), trace.remains()
    finally:
        lab.close()


def test_a_start_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    with pytest.raises(LabUnavailableError):
        Lab.start(hosts=2, clock_offsets_s={"lab2": -1e9})
    assert list(tmp_path.iterdir()) == []


def test_where_namespaces_are_forbidden_it_says_so(tmp_path: Path) -> None:
    program = (
        "from pathlib import Path\n"
        "Path('/proc/sys/user/max_net_namespaces').write_text('0')\n"
        "from driple.orchestrator.lab.lab_client import Lab, LabUnavailableError\n"
        "try: Lab.start(hosts=1)\n"
        "except LabUnavailableError as error: print(error)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    environment.pop("XDG_RUNTIME_DIR", None)
    # The limit is that of a user namespace of its own: the machine's is not touched.
    words = ["unshare", "-Ur", sys.executable, "-c", program]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=30)
    assert done.stdout.startswith("no lab: namespaces are forbidden here"), done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []
