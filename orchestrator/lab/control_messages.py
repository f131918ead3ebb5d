"""Requests to the supervisor: a connection each, one JSON line each way; an answer can carry an open socket."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LONGEST = 1 << 20


@dataclass(frozen=True)
class Passed:
    """An answer that passes open sockets on. They are closed here afterwards."""

    sockets: Sequence[socket.socket]


def path_of(folder_fd: int, name: str) -> str:
    """A short path to a socket in that folder: the real one may exceed the 108 bytes of a socket address."""
    return f"/proc/self/fd/{folder_fd}/{name}"


def call(path: Path, timeout_s: float) -> socket.socket:
    """Connects to the supervisor at `path`; OSError if there is none."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        line.settimeout(timeout_s)
        line.connect(path_of(folder, path.name))
    except BaseException:
        line.close()
        raise
    finally:
        os.close(folder)
    return line


def send(line: socket.socket, message: object, descriptors: Sequence[int] = ()) -> None:
    """Sends one message."""
    data = json.dumps(message).encode() + b"\n"
    sent = socket.send_fds(line, [data], descriptors) if descriptors else 0
    line.sendall(data[sent:])


def receive(line: socket.socket) -> tuple[Any, list[int]]:
    """The next message with its descriptors; (None, []) when the other side has ended."""
    data, descriptors = b"", []
    while not data.endswith(b"\n"):
        part, fds, _, _ = socket.recv_fds(line, 65536, 4)
        for descriptor in fds:
            os.set_inheritable(descriptor, False)  # recv_fds ignores the flag for it
        descriptors += fds
        if not part or len(data) > LONGEST:
            for descriptor in descriptors:
                os.close(descriptor)
            return None, []
        data += part
    return json.loads(data), descriptors


def other_side(line: socket.socket) -> int:
    """PID of the process that answers, as this process sees it."""
    pid, _, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return int(pid)
