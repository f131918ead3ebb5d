"""Events: lines that an agent sends without being asked, `{"ended": {"name": ..., "pid": ..., ...}}`.

An agent sends `ready` once; before it `busy` while another agent uses the host, or `failed` if it cannot start.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple, Union

from driple.contracts.formats.task_files import Finished
from driple.contracts.protocol.message import Tagged


class Ready(Tagged):
    """The agent is ready; facts about the host."""

    pid: int
    uid: int
    gid: int
    ssh_address: Optional[str]  # address of the host on the SSH connection that started the agent
    python: str
    executable: str
    hostname: str
    kernel: str
    boot_id: str
    cores: int
    memory_bytes: int
    work: str  # absolute path of the agent's work folder
    disk_free_bytes: int
    mono_ns: int
    real_ns: int
    ended_left: Tuple[str, ...]  # processes of an earlier agent that were still running and have been ended


class Busy(Tagged):
    """Another agent uses the host."""

    owner: str
    pid: Optional[int]
    since_real_s: Optional[float]


class Failed(Tagged):
    """The agent cannot start."""

    bare = "why"
    why: str


class Said(Tagged):
    """A line on the stdout of a process that was started with `talk`."""

    name: str
    line: str
    cut: bool = False  # whether the line was too long and has been truncated


class Progress(Tagged):
    """Progress of a task that is followed."""

    name: str
    ready: bool
    steps: int
    last: Optional[Dict[str, Any]]  # the last step, as the task wrote it
    finished: Optional[Finished]
    alive: bool


class Ended(Tagged):
    """A process ended."""

    name: str
    pid: int
    exit_code: int  # negative: the number of the signal that killed it
    mono_ns: int


class Trouble(Tagged):
    """A process exceeded a limit or cannot be ended."""

    name: str
    what: str


ProcessEvent = Union[Said, Progress, Ended, Trouble]  # an event that names a process
EVENTS = (Ready, Busy, Failed, Said, Progress, Ended, Trouble)
