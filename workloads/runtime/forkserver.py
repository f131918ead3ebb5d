"""Fork server: imports a framework once and forks each task, so that a run does not wait for the import.

Its messages, on stdin and stdout, are those of contracts/protocol/forkserver_messages.py. When stdin closes, it ends
its tasks and itself; when it is killed, the kernel kills its tasks. It never creates an op, a session or a thread.
"""

from __future__ import annotations

import ctypes
import gc
import os
import selectors
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import NoReturn

from driple.contracts.command import printable
from driple.contracts.errors import BadInput, DripleError, shown
from driple.contracts.formats.task_files import STDERR_LOG, STDOUT_LOG
from driple.contracts.protocol.forkserver_messages import Ended, Error, Ready, Run, Started, Stop, read_line
from driple.contracts.protocol.message import Tagged
from driple.workloads.frameworks.registry import framework_of
from driple.workloads.runtime.task import run_job_file

STOP_S = 2.0
_PR_SET_PDEATHSIG = 1


def serve_stdin(name: str) -> int:
    """Serves tasks of the framework of that name until stdin closes."""
    framework = framework_of(name)
    framework.prepare_environment(gpu=None)
    version = framework.load()
    load_packages(framework.packages)
    host = _Host()
    host.say(Ready(pid=os.getpid(), framework=name, version=version))
    return host.serve()


def load_packages(packages: Iterable[str]) -> None:
    """Imports all modules of these packages, which forked tasks then share."""
    import importlib
    import pkgutil

    for package in packages:
        for found in pkgutil.iter_modules(importlib.import_module(f"driple.workloads.{package}").__path__):
            importlib.import_module(f"driple.workloads.{package}.{found.name}")
    gc.freeze()  # a collection in a child would write to, and so copy, every page of these modules


class _Host:
    def __init__(self) -> None:
        self._running: dict[int, Run] = {}
        self._kill_at: dict[int, float] = {}
        self._text = b""
        self._open = True
        self._child_ended, wake = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)  # a handler, so that the wake-up is written

    def say(self, message: Tagged) -> None:
        print(message.to_line(), flush=True)

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
                self.say(Error(message=str(error)))

    def _obey(self, line: bytes) -> None:
        message = read_line(line)
        if isinstance(message, Run):
            pid = self._fork(message)
            self._running[pid] = message
            self.say(Started(pid=pid, task=message.task, out=message.out))
        elif isinstance(message, Stop):
            if message.pid in self._running:  # else it ended in the meantime
                self._stop(message.pid)
        else:
            raise BadInput(f'expected {{"run": ...}} or {{"stop": pid}}, got {shown(line)}')

    def _fork(self, order: Run) -> int:
        parent = os.getpid()
        with warnings.catch_warnings():
            # Python counts a thread that an import of TensorFlow or NumPy leaves; it holds no lock that a task needs.
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
                self.say(Ended(pid=pid, task=order.task, out=order.out, exit_code=code))


def _be_task(order: Run, parent: int) -> NoReturn:
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
        out = Path(order.out)
        _redirect(out)
        graph = None if order.graph is None else Path(order.graph)
        run_job_file(Path(order.job), order.task, out, graph_file=graph)
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
            os.open(out / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666) for name in (STDOUT_LOG, STDERR_LOG)
        ]
    except OSError as error:
        raise BadInput(f"{out}: {error.strerror}") from None
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (targets[0], 1), (targets[1], 2)):
        os.dup2(source, target)
        os.close(source)
