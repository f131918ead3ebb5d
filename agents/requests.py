"""What a controller can ask of a steward: one class a request, whose fields are the keys of its JSON object."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Dict, Optional, Tuple

from driple.contracts.errors import BadInput, shown

DAY_S = 86_400.0


@dataclass(frozen=True)
class Beat:
    """A sign of life, wanted and given."""


@dataclass(frozen=True)
class Look:
    """What the host has."""

    nics: Tuple[str, ...] = ()
    """Interfaces to describe; all if none is named."""
    gpus: bool = False
    """Whether to list the GPUs."""
    python: Optional[Tuple[str, ...]] = None
    """Head of the command line that runs tasks: its versions are wanted."""


@dataclass(frozen=True)
class Ports:
    """Free TCP ports."""

    count: int

    def __post_init__(self) -> None:
        _within("count", self.count, 0, 1000)


@dataclass(frozen=True)
class Write:
    """A file."""

    path: str
    text: str


@dataclass(frozen=True)
class Start:
    """A process."""

    name: str
    argv: Tuple[str, ...]
    stderr: str
    """File that its stderr is added to."""
    env: Dict[str, str] = field(default_factory=dict)
    stdout: Optional[str] = None
    """File that its stdout is added to; None: nowhere, or to the controller if it talks."""
    talk: bool = False
    """Whether its stdout is relayed line by line, and it can be told lines."""
    lifeline: bool = True
    """Whether its stdin is a pipe that closes when the steward ends."""
    limit_s: float = DAY_S
    cwd: str = ""
    """Where it starts: the work folder, or one in it."""

    def __post_init__(self) -> None:
        if not self.name or not self.argv or not self.argv[0]:
            raise BadInput("expected a name, and a program as the first of argv")
        if self.talk and self.stdout is not None:
            raise BadInput("talk and stdout: expected one of the two")
        _within("limit_s", self.limit_s, 0.001, 1e7)


@dataclass(frozen=True)
class Tell:
    """A line to a process that talks."""

    name: str
    line: str

    def __post_init__(self) -> None:
        if "\n" in self.line:
            raise BadInput("line: expected one line")


@dataclass(frozen=True)
class Stop:
    """The end of some processes, by the ladder."""

    names: Tuple[str, ...]
    grace_s: float = 5.0

    def __post_init__(self) -> None:
        _within("grace_s", self.grace_s, 0.0, 3600.0)


@dataclass(frozen=True)
class Follow:
    """How far a task is, from now on."""

    name: str
    folder: str
    pid: Optional[int] = None
    """The task's process, where the steward did not start it itself under that name."""


@dataclass(frozen=True)
class Unfollow:
    """No longer."""

    name: str


@dataclass(frozen=True)
class Tail:
    """The end of a file."""

    path: str
    lines: int = 10

    def __post_init__(self) -> None:
        _within("lines", self.lines, 0, 100_000)


@dataclass(frozen=True)
class Steps:
    """A task's steps as Parquet."""

    source: str
    target: str


@dataclass(frozen=True)
class Sums:
    """Sizes and checksums of all files under a folder."""

    folder: str


@dataclass(frozen=True)
class Remove:
    """A file or folder no more."""

    path: str


@dataclass(frozen=True)
class Run:
    """A short command, to its end."""

    argv: Tuple[str, ...]
    limit_s: float = 20.0

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise BadInput("expected a program as the first of argv")
        _within("limit_s", self.limit_s, 0.001, 600.0)


@dataclass(frozen=True)
class UndoLater:
    """A command that takes off what will be done; run when the steward ends, whatever ends it."""

    name: str
    argv: Tuple[str, ...]


@dataclass(frozen=True)
class UndoNow:
    """All of those commands, now."""


@dataclass(frozen=True)
class Listen:
    """This end of a network probe, which waits."""


@dataclass(frozen=True)
class Send:
    """The other end, which sends."""

    address: str
    port: int
    seconds: float = 0.5
    """How long it streams over TCP."""
    packets: int = 1000
    """How many datagrams it sends after that."""
    payload: int = 1000
    """Bytes of each."""

    def __post_init__(self) -> None:
        _within("port", self.port, 1, 65535)
        _within("seconds", self.seconds, 0.0, 10.0)
        _within("packets", self.packets, 0, 100_000)
        _within("payload", self.payload, 1, 65_000)


@dataclass(frozen=True)
class Heard:
    """What arrived."""

    token: str


@dataclass(frozen=True)
class Quit:
    """The end of all of it."""

    grace_s: float = 2.0

    def __post_init__(self) -> None:
        _within("grace_s", self.grace_s, 0.0, 3600.0)


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise BadInput(f"{name}: expected {low:g} to {high:g}, got {shown(value)}")
