"""driple-run as people use it: the whole command, killed, interrupted, run again."""

from __future__ import annotations

import contextlib
import http.server
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from driple.contracts.manifest import SEALED, Manifest
from driple.orchestrator.lab.lab_client import living_labs

pytestmark = [pytest.mark.integration, pytest.mark.tf, pytest.mark.timeout(300)]

EXPERIMENT = """\
setting: cpu-p1w1-1g
hosts: lab
workloads:
  - {model: lenet, batch_size: [2, 3], image_size: 32, width: 0.125}
duration: DURATION
warmup_steps: 1
threads: 1
sampling_hz: 50
retries: 0
timeouts: {start: 90s, stop: 5s}
"""


class Command:
    """driple-run in a folder of its own, as a child."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.lines: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "driple.orchestrator.cli", "sweep.yaml", *options],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)

    def until(self, told: str) -> None:
        """Waits until it has said so."""
        end = time.monotonic() + 120
        while not any(told in line for line in self.lines):
            assert time.monotonic() < end and self.process.poll() is None, (told, self.lines)
            time.sleep(0.05)

    def end(self) -> tuple[int, str]:
        """Exit code and stdout."""
        assert self.process.stdout is not None
        out = self.process.stdout.read()
        code = self.process.wait(timeout=120)
        self.close()
        return code, out

    def close(self) -> None:
        """Ends it if it still runs. Safe to call twice."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(10)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Callable[..., Command]]:
    started: list[Command] = []

    def start(*options: str, duration: str = "2s") -> Command:
        (tmp_path / "sweep.yaml").write_text(EXPERIMENT.replace("DURATION", duration))
        started.append(Command(tmp_path, *options))
        return started[-1]

    yield start
    for one in started:
        one.close()


def namespaces(marks: set[str] | None = None) -> set[str]:
    """Network namespaces of the processes that have one of these in their command line, or of all processes."""
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):  # it has just ended
                line = (entry / "cmdline").read_bytes().decode("utf-8", "replace")
                if marks is None or any(mark in line for mark in marks):
                    found.add(str((entry / "ns" / "net").readlink()))
    return found


def descendants_gone(marks: set[str]) -> bool:
    """Whether no process is left that has one of these in its command line."""
    return not namespaces(marks)


def wait_for(such: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + 30
    while not such():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def own_labs(command: Command) -> set[str]:
    """Names of the labs that this command made."""
    return {name for name in living_labs() if name.startswith(f"run-{command.process.pid}-")}


def test_killed_and_run_again_it_does_exactly_what_is_missing(command: Callable[..., Command], tmp_path: Path) -> None:
    first = command(duration="5s")
    first.until("-b3-")  # one is sealed, the other has begun
    first.until("sealed")
    labs = own_labs(first)
    assert len(labs) == 1
    time.sleep(2)  # less than the other takes, on any machine
    first.process.kill()
    first.process.wait()
    wait_for(lambda: descendants_gone(labs), "processes of the lab outlive the controller")
    wait_for(lambda: not own_labs(first), "the lab outlives the controller")

    again = command("--json", duration="5s")
    code, out = again.end()
    assert code == 0, again.lines
    summary = json.loads(out)
    assert summary["done_before"] == 1 and summary["counts"] == {"sealed": 1, "failed": 0, "not done": 0}
    folder = tmp_path / "traces" / "sweep"
    manifests = [Manifest.read(path) for path in folder.glob("*/run.json")]
    assert [manifest.status for manifest in manifests] == [SEALED, SEALED]
    assert sorted(path.name for path in folder.iterdir() if path.name.startswith(".")) == [".lock"]

    third = command("--json", duration="5s")
    code, out = third.end()
    assert code == 0 and json.loads(out)["runs"] == []
    assert not own_labs(third)


def test_interrupted_once_it_stops_cleanly(command: Callable[..., Command], tmp_path: Path) -> None:
    running = command(duration="60s")
    running.until("started")
    wait_for(lambda: bool(own_labs(running)), "no lab")
    labs = own_labs(running)
    time.sleep(8)
    made = namespaces(labs) - {str(Path("/proc/self/ns/net").readlink())}
    assert len(made) >= 3, "a lab of two hosts and a switch"
    running.process.send_signal(signal.SIGINT)
    code, out = running.end()
    assert code == 130, running.lines
    assert "2 not done" in out
    assert descendants_gone(labs) and not own_labs(running)
    assert not made & namespaces(), "a process lives on in a host of the lab"
    assert not list((tmp_path / "traces" / "sweep").glob("cpu-*"))


def test_interrupted_twice_it_ends_at_once(command: Callable[..., Command]) -> None:
    running = command(duration="60s")
    running.until("started")
    wait_for(lambda: bool(own_labs(running)), "no lab")
    labs = own_labs(running)
    time.sleep(1)
    running.process.send_signal(signal.SIGINT)
    running.until("once more ends at once")
    running.process.send_signal(signal.SIGINT)
    assert running.end()[0] == 130
    assert not any("Traceback" in line for line in running.lines), running.lines
    wait_for(lambda: descendants_gone(labs), "processes of the lab outlive the controller")


def test_a_second_controller_is_refused(command: Callable[..., Command]) -> None:
    first = command(duration="60s")
    first.until("started")
    second = command(duration="60s")
    assert second.end()[0] == 2
    assert f"process {first.process.pid}" in "".join(second.lines)
    first.process.send_signal(signal.SIGTERM)
    assert first.end()[0] == 130


class Hook(http.server.BaseHTTPRequestHandler):
    """Keeps what it is sent."""

    got: list[dict[str, Any]] = []

    def do_POST(self) -> None:
        self.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None: ...


def test_failures_are_told_and_fail_fast_ends_the_sweep(command: Callable[..., Command], tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def build(images):\n    raise ValueError('no such layer')\n")
    running = None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        text = EXPERIMENT.replace("DURATION", "2s").replace(
            "{model: lenet, batch_size: [2, 3], image_size: 32, width: 0.125}",
            "{model: 'broken.py:build', dataset: cifar10, batch_size: [2, 3]}",
        )
        (tmp_path / "sweep.yaml").write_text(text)
        running = Command(
            tmp_path,
            "--fail-fast",
            "--on-failure",
            "cat > failure.json",
            "--on-finish",
            "cat > finish.json",
            "--webhook",
            f"http://127.0.0.1:{server.server_port}/secret",
        )
        code, out = running.end()
        server.shutdown()
    assert code == 1, running.lines
    shown = "".join(running.lines)
    assert "no such layer" in shown and "worker:0 on lab2" in shown and "exit code 2" in shown
    assert "driple.workloads.cli task" in shown  # the command, as a person could type it
    assert "1 not done" in out and "1 failed" in out
    assert json.loads((tmp_path / "failure.json").read_text())["event"] == "failed"
    assert json.loads((tmp_path / "finish.json").read_text())["counts"]["failed"] == 1
    assert [entry["event"] for entry in Hook.got] == ["failed", "finished"]
    assert "secret" not in shown


@pytest.mark.parametrize(
    "options",
    [("--parallel", "0"), ("--webhook", "ftp://x"), ("--keep-going", "--fail-fast"), ("--output", "sweep.yaml")],
)
def test_bad_options(command: Callable[..., Command], options: tuple[str, ...]) -> None:
    running = command(*options)
    assert running.end()[0] == 2
    assert len(running.lines) == 1, running.lines
