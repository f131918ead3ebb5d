"""The supervisor's control socket: one thread answers all clients until the lab ends."""

from __future__ import annotations

import errno
import json
import os
import selectors
import socket
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driple.contracts.errors import DripleError
from driple.orchestrator.lab import control_messages
from driple.orchestrator.lab.host_process import BootError
from driple.orchestrator.lab.tools import ToolError

Action = Callable[[Mapping[str, Any]], object]
Address = Callable[[str], tuple[str, int]]
_LOOK_S = 2.0
_REPLY_LIMIT_S = 5.0


@dataclass
class _Client:
    line: socket.socket
    text: bytes = b""


@dataclass
class _Connecting:
    """A pending connection to a host, and the client that waits for it."""

    line: socket.socket
    host: socket.socket
    name: str
    deadline: float


class Server:
    """Serves until a lifeline closes, a client requests the end, or the lab's folder is removed."""

    def __init__(self, path: Path, actions: Mapping[str, Action], address: Address, lifelines: Iterable[int]) -> None:
        self._folder = path.parent
        self._actions = actions
        self._address = address
        self._selector = selectors.DefaultSelector()
        self._dialling: list[_Connecting] = []
        folder = os.open(self._folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(control_messages.path_of(folder, path.name))
        self._listener.listen(512)
        os.close(folder)
        self._selector.register(self._listener, selectors.EVENT_READ)
        for lifeline in lifelines:
            self._selector.register(lifeline, selectors.EVENT_READ)

    def serve(self) -> socket.socket | None:
        """Returns when the lab must end, with the connection of the client that requested it, if one did."""
        while True:
            wait_s = min((each.deadline - time.monotonic() for each in self._dialling), default=_LOOK_S)
            events = self._selector.select(max(0.0, min(wait_s, _LOOK_S)))
            if not events and not self._folder.exists():
                return None  # nobody could find a detached lab without its folder
            for key, _ in events:
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.data, _Connecting):
                    self._connected(key.data)
                elif isinstance(key.data, _Client):
                    if self._hear(key.data):
                        return key.data.line
                else:
                    return None  # a lifeline
            now = time.monotonic()
            for late in [each for each in self._dialling if each.deadline <= now]:
                self._give_up(late, "no answer in time")

    def _accept(self) -> None:
        line, _ = self._listener.accept()
        line.setblocking(False)
        self._selector.register(line, selectors.EVENT_READ, _Client(line))

    def _hear(self, asker: _Client) -> bool:
        """Reads; answers once the line is complete. True if the lab must end."""
        try:
            part = asker.line.recv(65536)
        except OSError:
            part = b""
        asker.text += part
        if part and not asker.text.endswith(b"\n") and len(asker.text) < control_messages.LONGEST:
            return False
        self._selector.unregister(asker.line)
        asker.line.settimeout(_REPLY_LIMIT_S)
        if not part:
            asker.line.close()
            return False
        return self._answer(asker.line, asker.text)

    def _answer(self, line: socket.socket, text: bytes) -> bool:
        """Handles a request. True if it is to end the lab."""
        try:
            request = json.loads(text)
            if request["do"] == "down":
                return True
            if request["do"] == "connect":
                self._dial(line, request["host"], float(request["timeout_s"]))
                return False
            result = self._actions[request["do"]](request)
            if isinstance(result, control_messages.Passed):
                _reply(line, {"ok": None}, [each.fileno() for each in result.sockets])
                for each in result.sockets:
                    each.close()
                return False
            answer: dict[str, object] = {"ok": result}
        except (ToolError, BootError, DripleError, OSError) as error:
            answer = {"failed": str(error)}
        except Exception as error:  # a malformed request must not end the lab
            traceback.print_exc()
            answer = {"failed": f"{type(error).__name__}: {error}"}
        _reply(line, answer)
        return False

    def _dial(self, line: socket.socket, name: str, timeout_s: float) -> None:
        host = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        host.setblocking(False)
        host.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        dialling = _Connecting(line, host, name, time.monotonic() + timeout_s)
        result = host.connect_ex(self._address(name))
        self._dialling.append(dialling)
        self._selector.register(host, selectors.EVENT_WRITE, dialling)
        if result not in (0, errno.EINPROGRESS):
            self._give_up(dialling, os.strerror(result))

    def _connected(self, dialling: _Connecting) -> None:
        result = dialling.host.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if result:
            self._give_up(dialling, os.strerror(result))
            return
        self._forget(dialling)
        dialling.host.setblocking(True)  # the client shares this property of the connection
        _reply(dialling.line, {"ok": None}, [dialling.host.fileno()])
        dialling.host.close()

    def _give_up(self, dialling: _Connecting, why: str) -> None:
        self._forget(dialling)
        dialling.host.close()
        _reply(dialling.line, {"lost": f"{dialling.name}: {why}"})

    def _forget(self, dialling: _Connecting) -> None:
        self._selector.unregister(dialling.host)
        self._dialling.remove(dialling)


def _reply(line: socket.socket, answer: object, descriptors: Iterable[int] = ()) -> None:
    with suppress(OSError):  # the client has gone
        control_messages.send(line, answer, list(descriptors))
    line.close()
