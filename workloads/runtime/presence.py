"""Listens at a task's own address during the whole job, where the framework does not.

The other tasks watch it through an idle connection (`Peers` of watchdog.py). Its answer is a line of text that they can
ask for.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
import time

from driple.workloads.runtime.watchdog import port_taken

ANSWER_S = 2.0
RETRY_S = 0.1
_ASK = b"driple\n"


class Presence:
    """Answers whoever connects, and keeps the connection until the other side or this process ends."""

    def __init__(self, address: str) -> None:
        """Opens the port of `address`."""
        host, _, port = address.rpartition(":")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host.strip("[]"), int(port)), family=family)
        except OSError as error:
            raise port_taken(int(port), error) from None
        self._text = b"\n"
        threading.Thread(target=self._serve, name="presence", daemon=True).start()

    def announce(self, text: str) -> None:
        """Sets the answer; it is empty until then."""
        self._text = text.encode("ascii") + b"\n"

    def _serve(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is self._listener:
                        with contextlib.suppress(OSError):
                            connection, _ = self._listener.accept()
                            connection.setblocking(False)
                            selector.register(connection, selectors.EVENT_READ, data=connection)
                    elif not self._answer(key.data):
                        selector.unregister(key.fileobj)
                        key.data.close()

    def _answer(self, connection: socket.socket) -> bool:
        """Whether the connection goes on."""
        try:
            if not connection.recv(4096):
                return False
            connection.sendall(self._text)
        except OSError:
            return False
        return True


def wait_for_text(address: str) -> str:
    """What the task at `address` announces, as soon as it does. It is asked over one connection once it answers."""
    host, _, port = address.rpartition(":")
    while True:
        with (
            contextlib.suppress(OSError),
            socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S) as connection,
        ):
            while True:
                connection.sendall(_ASK)
                answer = connection.recv(100)
                if answer.strip():
                    return answer.decode("ascii", "replace").strip()
                if not answer:
                    break
                time.sleep(RETRY_S)
        time.sleep(RETRY_S)
