"""Start barrier of an all-reduce job, before TensorFlow forms its ring.

TensorFlow would wait for ever for a missing worker without naming it. So each worker first listens at its own address
until it has heard from all the others and has reached all of them; then the port is free for TensorFlow. `silent` finds
workers that are lost later.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Mapping

from driple.workloads.runtime.watchdog import GREETING, port_taken

RETRY_S = 0.1
ANSWER_S = 2.0
_HELLO = b"driple "


class StartBarrier:
    """One worker's side of the barrier."""

    def __init__(self, task: str, address: str, others: Mapping[str, str]) -> None:
        self._task = task
        self._others = dict(others)
        self._heard: set[str] = set()
        self._reached: set[str] = set()
        host, _, port = address.rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server(("", int(port)), family=family)
        except OSError as error:
            raise port_taken(int(port), error) from None

    def missing(self) -> list[str]:
        """Workers that have not connected both ways yet, with addresses."""
        met = self._heard & self._reached
        return [f"{name} ({address})" for name, address in self._others.items() if name not in met]

    def wait(self) -> None:
        """Returns when all workers have connected and the port is free again. The caller sets the time limit."""
        listening = threading.Thread(target=self._listen, name="start barrier", daemon=True)
        listening.start()
        while self._reached < set(self._others):
            for name in sorted(set(self._others) - self._reached):
                self._greet(name)
            time.sleep(RETRY_S)
        listening.join()
        self._listener.close()

    def _listen(self) -> None:
        while self._heard < set(self._others):
            connection, _ = self._listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.settimeout(ANSWER_S)
                said = connection.recv(100)
                name = said.removeprefix(_HELLO).decode("ascii", "replace")
                if said.startswith(_HELLO) and name in self._others:
                    connection.sendall(_HELLO)
                    connection.recv(1)  # the other side closes first, so TIME_WAIT does not block this port
                    self._heard.add(name)

    def _greet(self, name: str) -> None:
        host, _, port = self._others[name].rpartition(":")
        with contextlib.suppress(OSError):
            with socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S) as connection:
                connection.sendall(_HELLO + self._task.encode("ascii"))
                answered = connection.recv(100) == _HELLO
            if answered:
                self._reached.add(name)


def silent(addresses: Mapping[str, str]) -> list[str]:
    """Workers whose TensorFlow server does not answer now, with addresses. Takes at most `ANSWER_S`.

    The kernel accepts connections for a stopped process, so only an answer counts.
    """
    answered: set[str] = set()

    def ask(name: str, address: str) -> None:
        host, _, port = address.rpartition(":")
        where = (host.strip("[]"), int(port))
        with contextlib.suppress(OSError), socket.create_connection(where, timeout=ANSWER_S) as connection:
            connection.sendall(GREETING)
            if connection.recv(100):
                answered.add(name)

    threads = [threading.Thread(target=ask, args=each, daemon=True) for each in addresses.items()]
    deadline = time.monotonic() + ANSWER_S
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    return [f"{name} ({address})" for name, address in addresses.items() if name not in answered]
