"""What a controller can ask of a steward: one class a request, whose fields are the keys of its JSON object.

Plain classes and not dataclasses: making twenty of those takes longer than all else that a steward does to start.
"""

from __future__ import annotations

from typing import Any, Dict, Optional, Tuple

from driple.contracts.errors import BadInput, shown, unknown
from driple.contracts.json_scalar import at, expect

DAY_S = 86_400.0

_SCALARS = {"str": str, "int": int, "float": float, "bool": bool}


class Request:
    """A base: annotations are the keys with their types, and a value there is a default."""

    def __init__(self, asked: Dict[str, Any], place: str) -> None:
        """Raises BadInput, with the place, for a key that is unknown or missing, or a value that is not allowed."""
        kinds: Dict[str, str] = getattr(self, "__annotations__", {})
        for key, value in asked.items():
            if key not in kinds:
                raise BadInput(at(place, unknown("key", key, tuple(kinds))))
            setattr(self, key, _decoded(kinds[key], value, f"{place}.{key}"))
        for key in kinds:
            if not hasattr(self, key):
                raise BadInput(at(place, f"key {key!r} is missing"))
        try:
            self.check()
        except BadInput as error:
            raise BadInput(at(place, str(error))) from None

    def check(self) -> None:
        """Raises BadInput for values that do not go, or do not go together."""


class Beat(Request):
    """A sign of life, wanted and given."""


class Look(Request):
    """What the host has."""

    nics: Tuple[str, ...] = ()
    """Interfaces to describe; all if none is named."""
    gpus: bool = False
    """Whether to list the GPUs."""
    python: Optional[Tuple[str, ...]] = None
    """Head of the command line that runs tasks: its versions are wanted."""


class Ports(Request):
    """Free TCP ports."""

    count: int

    def check(self) -> None:
        _within("count", self.count, 0, 1000)


class Write(Request):
    """A file."""

    path: str
    text: str


class Start(Request):
    """A process."""

    name: str
    argv: Tuple[str, ...]
    stderr: str
    """File that its stderr is added to."""
    env: Optional[Dict[str, str]] = None
    stdout: Optional[str] = None
    """File that its stdout is added to; None: nowhere, or to the controller if it talks."""
    talk: bool = False
    """Whether its stdout is relayed line by line, and it can be told lines."""
    lifeline: bool = True
    """Whether its stdin is a pipe that closes when the steward ends."""
    limit_s: float = DAY_S
    cwd: str = ""
    """Where it starts: the work folder, or one in it."""

    def check(self) -> None:
        if not self.name or not self.argv or not self.argv[0]:
            raise BadInput("expected a name, and a program as the first of argv")
        if self.talk and self.stdout is not None:
            raise BadInput("talk and stdout: expected one of the two")
        _within("limit_s", self.limit_s, 0.001, 1e7)


class Tell(Request):
    """A line to a process that talks."""

    name: str
    line: str

    def check(self) -> None:
        if "\n" in self.line:
            raise BadInput("line: expected one line")


class Stop(Request):
    """The end of some processes, by the ladder."""

    names: Tuple[str, ...]
    grace_s: float = 5.0

    def check(self) -> None:
        _within("grace_s", self.grace_s, 0.0, 3600.0)


class Follow(Request):
    """How far a task is, from now on."""

    name: str
    folder: str
    pid: Optional[int] = None
    """The task's process, where the steward did not start it itself under that name."""


class Unfollow(Request):
    """No longer."""

    name: str


class Tail(Request):
    """The end of a file."""

    path: str
    lines: int = 10

    def check(self) -> None:
        _within("lines", self.lines, 0, 100_000)


class Steps(Request):
    """A task's steps as Parquet."""

    source: str
    target: str
    warmup: int = 0
    """Steps before the measured part, of which it says when it was."""


class Sums(Request):
    """Sizes and checksums of all files under a folder."""

    folder: str


class Remove(Request):
    """A file or folder no more."""

    path: str


class Run(Request):
    """A short command, to its end."""

    argv: Tuple[str, ...]
    limit_s: float = 20.0

    def check(self) -> None:
        if not self.argv or not self.argv[0]:
            raise BadInput("expected a program as the first of argv")
        _within("limit_s", self.limit_s, 0.001, 600.0)


class UndoLater(Request):
    """A command that takes off what will be done; run when the steward ends, whatever ends it."""

    name: str
    argv: Tuple[str, ...]


class UndoNow(Request):
    """All of those commands, now."""


class Listen(Request):
    """This end of a network probe, which waits."""


class Send(Request):
    """The other end, which sends."""

    address: str
    port: int
    seconds: float = 0.5
    """How long it streams over TCP."""
    packets: int = 1000
    """How many datagrams it sends after that."""
    payload: int = 1000
    """Bytes of each."""

    def check(self) -> None:
        _within("port", self.port, 1, 65535)
        _within("seconds", self.seconds, 0.0, 10.0)
        _within("packets", self.packets, 0, 100_000)
        _within("payload", self.payload, 1, 65_000)


class Heard(Request):
    """What arrived."""

    token: str


class Quit(Request):
    """The end of all of it."""

    grace_s: float = 2.0

    def check(self) -> None:
        _within("grace_s", self.grace_s, 0.0, 3600.0)


def _decoded(kind: str, value: Any, place: str) -> Any:
    """A value of a type that is named as in the classes above, which use no others."""
    if kind.startswith("Optional["):
        return None if value is None else _decoded(kind[len("Optional[") : -1], value, place)
    if kind == "Tuple[str, ...]":
        return tuple(expect(str, item, f"{place}[{i}]") for i, item in enumerate(expect(list, value, place)))
    if kind == "Dict[str, str]":
        return {key: expect(str, item, f"{place}.{key}") for key, item in expect(dict, value, place).items()}
    return expect(_SCALARS[kind], value, place)


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise BadInput(f"{name}: expected {low:g} to {high:g}, got {shown(value)}")
