"""Messages between the controller and the fork server of a host: one JSON object with one key per line.

server      {"ready": {"pid": 4711, "framework": "torch", "version": "2.13"}}   once, when the framework is loaded
controller  {"run": {"job": "job.json", "task": "worker:0", "out": "DIR"}}      optional: "graph": FILE
server      {"started": {"pid": 4712, "task": "worker:0", "out": "DIR"}}
server      {"ended": {"pid": 4712, "task": "worker:0", "out": "DIR", "exit_code": 0}}
controller  {"stop": 4712}                                                      SIGTERM, then SIGKILL
server      {"error": "..."}                                                    a line that it did not understand
"""

from __future__ import annotations

import json
from typing import Optional, Union

from driple.contracts.errors import BadInput, shown
from driple.contracts.protocol.message import Tagged, read_tagged


class Ready(Tagged):
    """The server can fork tasks."""

    pid: int
    framework: str
    version: str


class Run(Tagged):
    """Fork a task."""

    job: str
    task: str
    out: str
    graph: Optional[str] = None  # where a worker writes its graph; None for nowhere


class Stop(Tagged):
    """End a task."""

    bare = "pid"
    pid: int


class Started(Tagged):
    """A task was forked."""

    pid: int
    task: str
    out: str


class Ended(Tagged):
    """A task ended."""

    pid: int
    task: str
    out: str
    exit_code: int


class Error(Tagged):
    """The server did not understand a line."""

    bare = "message"
    message: str


MESSAGES = (Ready, Run, Stop, Started, Ended, Error)


def read_line(line: Union[str, bytes]) -> Tagged:
    """Decodes a line. Raises BadInput if it is not a message."""
    try:
        message = read_tagged(MESSAGES, json.loads(line))
    except (BadInput, ValueError, RecursionError) as error:
        raise BadInput(f"expected a message of the fork server, got {shown(line)}: {error}") from None
    if message is None:
        raise BadInput(f"expected a message of the fork server, got {shown(line)}")
    return message
