"""Real jobs on loopback for tests: job files with free ports, and a warm host that runs their tasks."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from driple.contracts.run_dir import file_name
from driple.contracts.run_spec import JobSpec, Measurement, RunSpec, TaskSpec
from driple.contracts.setting import Setting
from driple.contracts.strategy import default_strategy
from driple.workloads.runtime.job import workload_of

MakeFolder = Callable[[JobSpec], "Folder"]
COMMAND = [sys.executable, "-m", "driple.workloads.cli"]
PATIENCE_S = 100.0


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def make_job(
    setting: str = "cpu-p2w2-1g",
    model: str = "resnet20",
    *,
    steps: int | None = 10,
    duration_s: float | None = None,
    warmup: int = 0,
    batch: int = 8,
    size: int | None = None,
    width: float = 0.25,
    start_timeout_s: float = 60.0,
    step_timeout_s: float = 30.0,
    seed: int = 1,
    **workload: Any,
) -> JobSpec:
    parsed = Setting.parse(setting)
    workload.setdefault("strategy", default_strategy(parsed.servers))
    what = workload_of(model, None, batch, size=size, width=width, **workload)
    measured = Measurement(steps=steps, duration_s=duration_s, warmup_steps=warmup, threads=1)
    ports = free_ports(len(parsed.tasks))
    return JobSpec(
        run=RunSpec(parsed, what, measured, together=(parsed.tasks,), seed=seed),
        tasks=tuple(
            TaskSpec(task, "here", f"127.0.0.1:{port}") for task, port in zip(parsed.tasks, ports, strict=True)
        ),
        start_timeout_s=start_timeout_s,
        step_timeout_s=step_timeout_s,
    )


def again(job: JobSpec) -> JobSpec:
    """The same job at other ports."""
    ports = free_ports(len(job.tasks))
    tasks = tuple(replace(t, address=f"127.0.0.1:{port}") for t, port in zip(job.tasks, ports, strict=True))
    return replace(job, tasks=tasks)


class Folder:
    """A job's file, and a folder for each of its tasks."""

    def __init__(self, root: Path, job: JobSpec) -> None:
        self.root = root
        self.job = job
        root.mkdir(parents=True)
        self.job_file = root / "job.json"
        self.job_file.write_text(json.dumps(job.to_json()))

    def out(self, task: str) -> Path:
        return self.root / file_name(task)

    def marker(self, task: str, name: str) -> Any:
        path = self.out(task) / f"{name}.json"
        return json.loads(path.read_text()) if path.exists() else None

    def steps(self, task: str) -> list[dict[str, Any]]:
        path = self.out(task) / "steps.jsonl"
        # A line that is still being written has no end yet.
        whole = path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []
        return [json.loads(line) for line in whole]

    def losses(self, task: str) -> list[float]:
        return [step["loss"] for step in self.steps(task)]

    def last_words(self, task: str) -> str:
        return str((self.marker(task, "finished") or {}).get("message", ""))

    def wait_for_step(self, task: str, number: int) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while len(self.steps(task)) <= number:
            assert time.monotonic() < deadline, f"{task} never came to step {number}"
            assert self.marker(task, "finished") is None, self.marker(task, "finished")
            time.sleep(0.05)


class WarmHost:
    """`python -m driple.workloads.cli warm`, and what it said."""

    def __init__(self, log: Path, framework: str = "tensorflow") -> None:
        command = [*COMMAND, "warm", "--framework", framework]
        with log.open("w") as stderr:
            self.process = subprocess.Popen(command, stdin=-1, stdout=-1, stderr=stderr)
        self.codes: dict[int, int] = {}
        self.errors: list[str] = []
        self._pids: dict[Path, int] = {}
        self._text = b""
        self.ready = self._until(lambda said: said.get("ready"))

    def ask(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def error_of(self, line: str) -> str:
        self.ask(line)
        return str(self._until(lambda said: said.get("error")))

    def start(self, folder: Folder, tasks: Sequence[str] = (), **more: str) -> dict[str, int]:
        """Starts tasks (all, if none is named) and gives their process ids."""
        pids = {}
        for task in tasks or folder.job.run.setting.tasks:
            out = str(folder.out(task))
            self.ask(json.dumps({"run": {"job": str(folder.job_file), "task": task, "out": out, **more}}))
            pids[task] = self._until(
                lambda said, out=out: said.get("started") if said["started"]["out"] == out else None
            )["pid"]
        return pids

    def stop(self, pid: int) -> int:
        self.ask(json.dumps({"stop": pid}))
        return self.wait({"task": pid})["task"]

    def wait(self, pids: dict[str, int]) -> dict[str, int]:
        """Exit codes by task, once all have ended. None is left behind: a process that was waited for is gone."""
        while not all(pid in self.codes for pid in pids.values()):
            self._until(lambda said: said.get("ended"))
        for pid in pids.values():
            assert not Path(f"/proc/{pid}").exists()
        return {task: self.codes[pid] for task, pid in pids.items()}

    def run(self, folder: Folder, **more: str) -> dict[str, int]:
        return self.wait(self.start(folder, **more))

    def close(self) -> int:
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.close()
        code = self.process.wait(PATIENCE_S)
        self.process.stdout.close()
        return code

    def _until(self, wanted: Any) -> Any:
        while True:
            said = self._next()
            if "ended" in said:
                self.codes[said["ended"]["pid"]] = said["ended"]["exit_code"]
            kind = next(iter(said))
            with contextlib.suppress(KeyError):
                found = wanted(said)
                if found:
                    return found
            assert kind != "error", said

    def _next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        deadline = time.monotonic() + PATIENCE_S
        while b"\n" not in self._text:
            left = deadline - time.monotonic()
            assert left > 0 and select.select([descriptor], [], [], left)[0], "the warm host says nothing"
            received = os.read(descriptor, 65536)
            assert received, "the warm host has ended"
            self._text += received
        line, _, self._text = self._text.partition(b"\n")
        value: dict[str, Any] = json.loads(line)
        return value


def gone(pid: int) -> bool:
    """Whether a process has ended, or is a corpse that its parent has not buried."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def kill(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
