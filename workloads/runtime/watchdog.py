"""Ends a task that would otherwise wait for ever: time limits, lost peers, a lost parent process.

When a ps or worker is lost, the other tasks hang inside a TensorFlow call that no Python signal handler interrupts. So
every end goes through `Watchdog.leave`, in the thread that noticed: `finished` marker, message on stderr, `os._exit`.

A peer is watched through an idle TCP connection to its server port. The kernel closes it when the peer's process dies.
The connection is renewed twice within the time limit of a step, because a stopped process or a frozen host closes
nothing and answers nothing. This costs some hundred bytes a minute.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

from driple.contracts.command import printable
from driple.contracts.errors import RunFailed
from driple.contracts.run_spec import JobSpec
from driple.workloads.runtime.task_output import TaskOutput

RETRY_S = 0.2
CONNECT_S = 2.0
# HTTP/2 preface with an empty SETTINGS frame, and the acknowledgement that keeps the server from hanging up.
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
ACKNOWLEDGED = bytes((0, 0, 0, 4, 1, 0, 0, 0, 0))
PEER_LOSS_S = 1.5
"""How long an error of the framework waits for the watchdog to name the lost peer that caused it."""
BROKEN_TRIES = 3
"""Failed reconnections after which a known peer counts as lost; a refused connection counts at once."""


class Watchdog:
    """Time limits of one task, and its only exit."""

    def __init__(self, output: TaskOutput) -> None:
        self._output = output
        self._leaving = threading.Lock()
        self._change = threading.Condition()
        self._deadline: float | None = None
        self._complaint: str | Callable[[], str] = ""
        threading.Thread(target=self._run, name="watchdog", daemon=True).start()

    def expect(self, seconds: float, complaint: str | Callable[[], str]) -> None:
        """Ends the task with `complaint`, or its result, unless `expect` or `relax` is called within `seconds`."""
        with self._change:
            self._deadline = time.monotonic() + seconds
            self._complaint = complaint
            self._change.notify()

    def relax(self) -> None:
        with self._change:
            self._deadline = None
            self._change.notify()

    def leave(self, code: int, message: str = "", kind: str | None = None) -> NoReturn:
        """Ends the process: marker, message on stderr, exit. The first caller wins; others block."""
        self._leaving.acquire()
        try:
            self._output.finished(code, message, kind)
        except OSError as error:  # a full disk must not keep the task alive
            message = f"{message} (and {self._output.folder}: {error.strerror})"
            code = code or 1
        if message:
            print(printable(f"{self._output.task}: {message}"), file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)

    def end_with_stdin(self) -> None:
        """Ends the task when stdin closes: its starter is gone, and nobody else would stop it."""
        when_stdin_closes(lambda: self.leave(1, "stdin was closed: whoever started this task has gone"))

    def _run(self) -> None:
        with self._change:
            while True:
                left = None if self._deadline is None else self._deadline - time.monotonic()
                if left is not None and left <= 0:
                    break
                self._change.wait(left)
            complaint = self._complaint
        self.leave(1, complaint if isinstance(complaint, str) else complaint())


def when_stdin_closes(then: Callable[[], object]) -> None:
    """Reads stdin in a thread, and calls `then` in it at the end."""

    def read() -> None:
        while os.read(0, 4096):
            pass
        then()

    threading.Thread(target=read, name="stdin", daemon=True).start()


class Peers:
    """Connects to the other tasks and reports when one is lost."""

    def __init__(self, addresses: Mapping[str, str], on_lost: Callable[[str], None], answer_s: float = 60.0) -> None:
        """Watches addresses by task; calls `on_lost` once per task, in another thread, after `answer_s` of silence."""
        self._addresses = dict(addresses)
        self._answer_s = answer_s
        self._on_lost = on_lost
        self._reached: set[str] = set()
        for name in self._addresses:
            threading.Thread(target=self._follow, args=(name,), name=f"peer {name}", daemon=True).start()

    def missing(self) -> list[str]:
        """Tasks that never answered, with their addresses."""
        return [f"{name} ({address})" for name, address in self._addresses.items() if name not in self._reached]

    def _follow(self, name: str) -> None:
        host, _, port = self._addresses[name].rpartition(":")
        failures = 0
        while True:
            try:
                with socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_S) as connection:
                    self._reached.add(name)
                    failures = 0
                    self._sit(connection)
            except _Frozen:
                failures = BROKEN_TRIES
            except OSError as error:
                if name in self._reached and not isinstance(error, ConnectionResetError):
                    failures += BROKEN_TRIES if isinstance(error, ConnectionRefusedError) else 1
            if failures >= BROKEN_TRIES:
                self._on_lost(name)
                return
            time.sleep(RETRY_S)  # a closed connection alone is not a loss: servers may close idle ones

    def _sit(self, connection: socket.socket) -> None:
        """Greets, then waits until the connection ends or the next greeting is due."""
        connection.settimeout(self._answer_s)
        connection.sendall(GREETING)
        try:
            if connection.recv(4096):
                connection.sendall(ACKNOWLEDGED)
        except TimeoutError:
            raise _Frozen from None
        until = time.monotonic() + self._answer_s / 2
        while (left := until - time.monotonic()) > 0:
            connection.settimeout(left)
            with contextlib.suppress(TimeoutError):
                if not connection.recv(4096):
                    return


def gave_up(job: JobSpec, missing: Sequence[str], otherwise: str) -> str:
    """The message of a job that did not start in time: tasks that never answered, or another cause."""
    cause = f"{', '.join(missing)} never answered" if missing else otherwise
    return f"gave up after {job.start_timeout_s:g} s: {cause}"


def port_taken(port: int, error: OSError) -> RunFailed:
    """The error for a port that this task needs and cannot open."""
    return RunFailed(f"port {port} cannot be opened ({error.strerror}); end what uses it, or choose another")


class _Frozen(Exception):
    """The peer's host accepts connections, but the peer does not answer."""
