"""A warm host: imports TensorFlow once and forks each task, so that a run does not wait for the import.

It is told by JSON objects on stdin, a line each, and answers likewise on stdout:

    < {"ready": {"pid": 4711, "tensorflow": "2.21.0"}}                    once, when TensorFlow is loaded
    > {"run": {"job": "job.json", "task": "worker:0", "out": "DIR"}}      also "graph": FILE, as the task command has
    < {"started": {"pid": 4712, "task": "worker:0", "out": "DIR"}}
    < {"ended": {"pid": 4712, "task": "worker:0", "out": "DIR", "exit_code": 0}}
    > {"stop": 4712}                                                      SIGTERM, and SIGKILL two seconds later
    < {"error": "..."}                                                    a line that it did not understand

A task's own stdout and stderr are `stdout.log` and `stderr.log` in its folder. When stdin closes, every task is ended
and so is the host; when the host is killed, the kernel kills its tasks.

The host itself never makes an op, a session or a thread: what a task changes, it changes in its own process alone.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import selectors
import signal
import sys
import time
import traceback
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from driple.contracts.command import printable
from driple.contracts.errors import BadInput, DripleError, shown
from driple.workloads.frameworks.registry import framework_of
from driple.workloads.runtime.task import run_job_file

STOP_S = 2.0
_PR_SET_PDEATHSIG = 1


def serve_stdin() -> int:
    """Serves until stdin closes."""
    framework = framework_of("tensorflow")
    framework.prepare_environment(gpu=None)
    version = framework.load()
    _load_workloads()
    host = _Host()
    host.say("ready", {"pid": os.getpid(), "tensorflow": version})
    return host.serve()


def _load_workloads() -> None:
    """Imports all of our modules that a task may need."""
    import importlib
    import pkgutil

    for package in ("data", "frameworks", "graphs", "models", "strategies", "runtime"):
        for found in pkgutil.iter_modules(importlib.import_module(f"driple.workloads.{package}").__path__):
            importlib.import_module(f"driple.workloads.{package}.{found.name}")
    gc.freeze()  # a collection in a child would write to, and so copy, every page of these modules


@dataclass(frozen=True)
class _Order:
    job: Path
    task: str
    out: Path
    graph: Path | None


class _Host:
    def __init__(self) -> None:
        self._running: dict[int, _Order] = {}
        self._kill_at: dict[int, float] = {}
        self._text = b""
        self._open = True
        self._child_ended, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler, so that the wake-up is written

    def say(self, kind: str, value: Any) -> None:
        print(json.dumps({kind: value}), flush=True)

    def serve(self) -> int:
        with selectors.DefaultSelector() as selector:
            selector.register(0, selectors.EVENT_READ)
            selector.register(self._child_ended, selectors.EVENT_READ)
            while self._open or self._running:
                ready = {key.fd for key, _ in selector.select(self._patience())}
                if self._child_ended in ready:
                    os.read(self._child_ended, 4096)
                if 0 in ready:
                    self._read()
                    if not self._open:
                        selector.unregister(0)
                        for pid in self._running:
                            self._stop(pid)
                self._kill_late()
                self._reap()
        return 0

    def _read(self) -> None:
        received = os.read(0, 65536)
        self._open = bool(received)
        *lines, self._text = (self._text + received).split(b"\n")
        for line in filter(bytes.strip, lines):
            try:
                self._obey(line)
            except DripleError as error:
                self.say("error", str(error))

    def _obey(self, line: bytes) -> None:
        try:
            ((kind, value),) = json.loads(line).items()
            order = _order(value) if kind == "run" else None
        except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
            raise BadInput(f'expected {{"run": ...}} or {{"stop": pid}} on one line, got {shown(line)}') from None
        if order is not None:
            pid = self._fork(order)
            self._running[pid] = order
            self.say("started", {"pid": pid, "task": order.task, "out": str(order.out)})
        elif kind == "stop" and isinstance(value, int):
            if value in self._running:  # else it ended in the meantime
                self._stop(value)
        else:
            raise BadInput(f'expected {{"run": ...}} or {{"stop": pid}}, got {shown(line)}')

    def _fork(self, order: _Order) -> int:
        parent = os.getpid()
        with warnings.catch_warnings():
            # Python counts a thread that TensorFlow's import leaves; it holds no lock that a task needs.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            _be_task(order, parent)
        return pid

    def _stop(self, pid: int) -> None:
        os.kill(pid, signal.SIGTERM)  # a child is reaped only in _reap, so the number is still its own
        self._kill_at.setdefault(pid, time.monotonic() + STOP_S)

    def _patience(self) -> float | None:
        return max(0.0, min(self._kill_at.values()) - time.monotonic()) if self._kill_at else None

    def _kill_late(self) -> None:
        for pid, when in list(self._kill_at.items()):
            if time.monotonic() >= when:
                os.kill(pid, signal.SIGKILL)
                self._kill_at[pid] = when + STOP_S

    def _reap(self) -> None:
        for pid in list(self._running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                order = self._running.pop(pid)
                self._kill_at.pop(pid, None)
                code = os.waitstatus_to_exitcode(status)
                self.say("ended", {"pid": pid, "task": order.task, "out": str(order.out), "exit_code": code})


def _order(value: Any) -> _Order:
    unknown = set(value) - {"job", "task", "out", "graph"}
    if unknown or not all(isinstance(text, str) for text in value.values()):
        raise ValueError(unknown)
    graph = value.get("graph")
    return _Order(Path(value["job"]), value["task"], Path(value["out"]), None if graph is None else Path(graph))


def _be_task(order: _Order, parent: int) -> NoReturn:
    """In the child: what the task command does, and never back into the host's loop."""
    code = 1
    try:
        # Dies with the host, even where that is killed with -9.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        _redirect(order.out)
        run_job_file(order.job, order.task, order.out, graph_file=order.graph)
    except DripleError as error:
        code = error.exit_code
        for line in error.lines():
            print(printable(line), file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _redirect(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        targets = [
            os.open(out / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666) for name in ("stdout.log", "stderr.log")
        ]
    except OSError as error:
        raise BadInput(f"{out}: {error.strerror}") from None
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (targets[0], 1), (targets[1], 2)):
        os.dup2(source, target)
        os.close(source)
