"""Messages between the controller and the fork server of a host: one JSON object with one key per line.

server      {"ready": {"pid": 4711, "tensorflow": "2.21.0"}}                    once, when TensorFlow is loaded
controller  {"run": {"job": "job.json", "task": "worker:0", "out": "DIR"}}      optional: "graph": FILE
server      {"started": {"pid": 4712, "task": "worker:0", "out": "DIR"}}
server      {"ended": {"pid": 4712, "task": "worker:0", "out": "DIR", "exit_code": 0}}
controller  {"stop": 4712}                                                      SIGTERM, then SIGKILL
server      {"error": "..."}                                                    a line that it did not understand
"""

from __future__ import annotations

import json
from typing import Any, Dict, Optional, Type, Union

from driple.contracts.errors import BadInput, shown
from driple.contracts.json_scalar import expect
from driple.contracts.protocol.message import Message, encode


class ServerReady(Message):
    """The server can fork tasks."""

    pid: int
    tensorflow: str


class RunTask(Message):
    """Fork a task."""

    job: str
    task: str
    out: str
    graph: Optional[str] = None
    """Where a worker writes its graph; None for nowhere."""


class StopTask(Message):
    """End a task."""

    pid: int


class TaskStarted(Message):
    """A task was forked."""

    pid: int
    task: str
    out: str


class TaskEnded(Message):
    """A task ended."""

    pid: int
    task: str
    out: str
    exit_code: int


class ServerError(Message):
    """The server did not understand a line."""

    message: str


AnyMessage = Union[ServerReady, RunTask, StopTask, TaskStarted, TaskEnded, ServerError]

_KINDS: Dict[str, Type[Any]] = {
    "ready": ServerReady,
    "run": RunTask,
    "stop": StopTask,
    "started": TaskStarted,
    "ended": TaskEnded,
    "error": ServerError,
}
_NAMES = {kind: name for name, kind in _KINDS.items()}
_BARE = {StopTask: ("pid", int), ServerError: ("message", str)}
"""Messages whose value is not an object but that of their one key."""


def to_line(message: AnyMessage) -> str:
    """The message as a line of JSON, without its end."""
    value: Any = getattr(message, _BARE[type(message)][0]) if type(message) in _BARE else message
    return encode({_NAMES[type(message)]: value})


def read_line(line: Union[str, bytes]) -> AnyMessage:
    """Decodes a line. Raises BadInput if it is not a message."""
    try:
        ((name, value),) = json.loads(line).items()
        kind = _KINDS[name]
        if kind in _BARE:
            key, scalar = _BARE[kind]
            value = {key: expect(scalar, value, name)}
        message: AnyMessage = kind.read(value, name)
        return message
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError):
        raise BadInput(f"expected a message of the fork server, got {shown(line)}") from None
