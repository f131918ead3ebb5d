"""The workers of an all-reduce job meet before TensorFlow forms its ring.

TensorFlow waits there for ever for a worker that does not come, and does not say who is missing. So each worker first
listens at its own address, in plain Python, until it has heard from all the others and has reached all of them; then
the port is free for TensorFlow. Who is lost after that is found by asking: `silent`.
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
    """One worker's part in it."""

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
        """Who has not been met yet, with addresses."""
        met = self._heard & self._reached
        return [f"{name} ({address})" for name, address in self._others.items() if name not in met]

    def wait(self) -> None:
        """Returns when all have met, and the port is free again. Whoever calls sets the time limit."""
        listening = threading.Thread(target=self._listen, name="meeting", daemon=True)
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
                    connection.recv(
                        1
                    )  # the other closes first, and so keeps the closed connection's name, and not this port
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
    """Those at whose address no server of TensorFlow's answers now, with addresses. Takes no more than `ANSWER_S`.

    A process that is stopped still takes connections, or the kernel does for it; so only an answer counts.
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
