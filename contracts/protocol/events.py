"""Events: lines that an agent sends without being asked, `{"ended": {"name": ..., "pid": ..., ...}}`.

An agent sends `ready` once; before it `busy` while another agent uses the host, or `failed` if it cannot start.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple, Type, Union

from driple.contracts.formats.task_files import Finished
from driple.contracts.json_scalar import expect
from driple.contracts.protocol.message import Message, encode


class Event(Message):
    """Base class of events."""

    kind = ""
    """Name of the event on the wire."""

    def to_line(self) -> str:
        """The event as a line of JSON."""
        return encode({self.kind: self})


class Ready(Event):
    """The agent is ready; facts about the host."""

    kind = "ready"
    pid: int
    uid: int
    gid: int
    ssh_address: Optional[str]
    """Address of the host on the SSH connection that started the agent."""
    python: str
    executable: str
    hostname: str
    kernel: str
    boot_id: str
    cores: int
    memory_bytes: int
    work: str
    """Absolute path of the agent's work folder."""
    disk_free_bytes: int
    mono_ns: int
    real_ns: int
    ended_left: Tuple[str, ...]
    """Processes of an earlier agent that were still running and have been ended."""


class Busy(Event):
    """Another agent uses the host."""

    kind = "busy"
    owner: str
    pid: Optional[int]
    since_real_s: Optional[float]


class Failed(Event):
    """The agent cannot start."""

    kind = "failed"
    why: str

    def to_line(self) -> str:
        return encode({self.kind: self.why})

    @classmethod
    def read(cls, value: Any, place: str) -> Failed:
        return cls(why=expect(str, value, place))


class Said(Event):
    """A line on the stdout of a process that was started with `talk`."""

    kind = "said"
    name: str
    line: str
    cut: bool = False
    """Whether the line was too long and has been truncated."""


class Progress(Event):
    """Progress of a task that is followed."""

    kind = "progress"
    name: str
    ready: bool
    steps: int
    last: Optional[Dict[str, Any]]
    """The last step, as the task wrote it."""
    finished: Optional[Finished]
    alive: bool


class Ended(Event):
    """A process ended."""

    kind = "ended"
    name: str
    pid: int
    exit_code: int
    """Negative: the number of the signal that killed it."""
    mono_ns: int


class Trouble(Event):
    """A process exceeded a limit or cannot be ended."""

    kind = "trouble"
    name: str
    what: str


ProcessEvent = Union[Said, Progress, Ended, Trouble]
"""An event that names a process."""

_KINDS: Dict[str, Type[Event]] = {kind.kind: kind for kind in (Ready, Busy, Failed, Said, Progress, Ended, Trouble)}


def read_event(value: Dict[str, Any]) -> Optional[Event]:
    """Decodes an event; None for an object that is not an event.

    Raises:
        BadInput: it is an event with wrong content.
    """
    kind = next(iter(value), "")
    return _KINDS[kind].read(value[kind], kind) if kind in _KINDS else None
