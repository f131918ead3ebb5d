"""Requests from the controller to an agent, each with the class of its answer.

On the wire a request is `{"do": "ports", "id": 7, "count": 3}`. The answer is `{"id": 7, "ok": {...}}` or
`{"id": 7, "error": "one line"}`.
"""

from __future__ import annotations

from typing import Any, Dict, Generic, Optional, Tuple, TypeVar

from driple.contracts.errors import BadInput
from driple.contracts.protocol.message import Message, encode, snake_case

DAY_S = 86_400.0

A = TypeVar("A", bound=Message)


class Request(Message, Generic[A]):
    """A request that is answered by an `A`."""

    do = ""  # name of the request on the wire: the class name in snake case

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.do = snake_case(cls.__name__)

    def to_line(self, number: int) -> str:
        """The request as a line of JSON; `number` is its id."""
        return encode({"do": self.do, "id": number, **vars(self)})

    def read_answer(self, value: Any, place: str) -> A:
        answer: A = type(self).__orig_bases__[0].__args__[0].read(value, place)  # type: ignore[attr-defined]
        return answer


class Done(Message):
    """The answer of a request that returns nothing."""


class BeatAnswer(Message):
    """Answers Beat."""

    mono_ns: int


class Beat(Request[BeatAnswer]):
    """Heartbeat."""


class NicInfo(Message):
    """A network interface."""

    up: bool  # whether it is up and has a carrier
    speed_mbit: Optional[int]  # as the device reports it; None if it does not
    addresses: Tuple[str, ...]
    mtu: Optional[int]


class GpuInfo(Message):
    """A GPU."""

    index: int
    uuid: Optional[str]
    name: Optional[str]
    error: str = ""  # why the GPU could not be identified


class PythonInfo(Message):
    """An interpreter and the versions of its packages."""

    version: str
    executable: str
    packages: Dict[str, Optional[str]]
    """Version by module: driple, numpy, and the packages of all frameworks; None if it is not installed."""


class HostInfo(Message):
    """Answers Look."""

    nics: Dict[str, Optional[NicInfo]]  # None for an interface that does not exist
    interfaces: Tuple[str, ...]  # names of all interfaces
    gpus: Optional[Tuple[GpuInfo, ...]]
    python: Optional[PythonInfo]
    disk_free_bytes: int
    gpus_error: str = ""  # why there are no `gpus`
    python_error: str = ""  # why there is no `python`


class Look(Request[HostInfo]):
    """Describe the host."""

    nics: Tuple[str, ...] = ()  # interfaces to describe; all if empty
    gpus: bool = False  # whether to list the GPUs
    python: Optional[Tuple[str, ...]] = None
    """Head of the command line that runs tasks, to report the versions of its packages."""


class PortsAnswer(Message):
    """Answers Ports."""

    ports: Tuple[int, ...]


class Ports(Request[PortsAnswer]):
    """Find free TCP ports."""

    count: int
    limits = {"count": (0, 1000)}


class Write(Request[Done]):
    """Write a file."""

    path: str
    text: str


class StartAnswer(Message):
    """Answers Start."""

    pid: int
    start_mono_ns: int


class Start(Request[StartAnswer]):
    """Start a process."""

    name: str
    argv: Tuple[str, ...]
    stderr: str  # file to which stderr is appended
    env: Optional[Dict[str, str]] = None
    stdout: Optional[str] = None  # file to which stdout is appended; None: discarded, or relayed with `talk`
    talk: bool = False  # whether stdout is relayed line by line, and lines can be sent to stdin
    lifeline: bool = True  # whether stdin is a pipe that closes when the agent ends
    limit_s: float = DAY_S
    cwd: str = ""  # working directory: the agent's work folder or a folder inside it
    limits = {"limit_s": (0.001, 1e7)}

    def check(self) -> None:
        super().check()
        if not self.name or not self.argv or not self.argv[0]:
            raise BadInput("expected a name, and a program as the first of argv")
        if self.talk and self.stdout is not None:
            raise BadInput("talk and stdout: expected one of the two")


class JoinGroups(Request[Done]):
    """Move a process with all its threads into control groups. Nothing happens if it has ended."""

    pid: int
    files: Tuple[str, ...]  # `cgroup.procs` of each group


class Tell(Request[Done]):
    """Send a line to the stdin of a process that was started with `talk`."""

    name: str
    line: str

    def check(self) -> None:
        if "\n" in self.line:
            raise BadInput("line: expected one line")


class StopAnswer(Message):
    """Answers Stop."""

    ended: Dict[str, int]  # exit codes by name
    killed: Tuple[str, ...]  # processes that needed SIGKILL
    left: Tuple[str, ...] = ()  # processes with descendants that survived even SIGKILL


class Stop(Request[StopAnswer]):
    """Stop processes: SIGTERM, then SIGKILL after `grace_s`."""

    names: Tuple[str, ...]
    grace_s: float = 5.0
    limits = {"grace_s": (0.0, 3600.0)}


class Follow(Request[Done]):
    """Report the progress of a task from now on, as Progress events."""

    name: str
    folder: str
    pid: Optional[int] = None  # the task's process, if the agent did not start it under that name


class Unfollow(Request[Done]):
    """Stop reporting the progress of a task."""

    name: str


class TailAnswer(Message):
    """Answers Tail."""

    lines: Tuple[str, ...]


class Tail(Request[TailAnswer]):
    """Read the last lines of a file."""

    path: str
    lines: int = 10
    limits = {"lines": (0, 100_000)}


class StepsAnswer(Message):
    """Answers Steps."""

    rows: int
    measured_start_mono_ns: Optional[int]  # None if the task ended before the measured part
    measured_end_mono_ns: Optional[int]


class Steps(Request[StepsAnswer]):
    """Convert the steps of a task to Parquet."""

    source: str
    target: str
    warmup: int = 0  # steps before the measured part


class PacketsAnswer(Message):
    """Answers Packets."""

    rows: int
    dropped: int  # frames that the kernel could not store
    damaged_bytes: int  # of the capture, which were left out
    stopped_early: Optional[str]  # why the capture ended before the run


class Packets(Request[PacketsAnswer]):
    """Convert a packet capture to a packet file."""

    source: str
    target: str


class FileSum(Message):
    """Size and checksum of a file."""

    size: int
    sha256: str


class SumsAnswer(Message):
    """Answers Sums."""

    files: Dict[str, FileSum]  # by path relative to the folder


class Sums(Request[SumsAnswer]):
    """Compute sizes and checksums of all files under a folder."""

    folder: str


class Remove(Request[Done]):
    """Remove a file or folder."""

    path: str


class RunAnswer(Message):
    """Answers Run."""

    exit_code: int  # -1 if the program does not exist or took too long
    stdout: str
    stderr: str


class Run(Request[RunAnswer]):
    """Run a short command to its end."""

    argv: Tuple[str, ...]
    limit_s: float = 20.0
    limits = {"limit_s": (0.001, 600.0)}

    def check(self) -> None:
        super().check()
        if not self.argv or not self.argv[0]:
            raise BadInput("expected a program as the first of argv")


class UndoLater(Request[Done]):
    """Register a command that reverts a change. It runs when the agent ends, for whatever reason."""

    name: str
    argv: Tuple[str, ...]


class UndoNowAnswer(Message):
    """Answers UndoNow."""

    failed: Tuple[str, ...]  # names of the commands that failed


class UndoNow(Request[UndoNowAnswer]):
    """Run all registered commands now."""


class ListenAnswer(Message):
    """Answers Listen."""

    tcp_port: int
    udp_port: int
    token: str


class Listen(Request[ListenAnswer]):
    """Open the receiving end of a network probe."""


class SendAnswer(Message):
    """Answers Send."""

    bytes: int
    seconds: float
    packets: int
    rtt_ms: float = 0.0  # the least of the TCP stream; 0 if the kernel does not tell
    congestion: str = ""  # congestion control of the TCP stream


class Send(Request[SendAnswer]):
    """Send a network probe: a TCP stream, then datagrams."""

    address: str
    port: int
    seconds: float = 0.5  # duration of the TCP stream
    packets: int = 1000  # number of datagrams
    payload: int = 1000  # bytes of each datagram
    limits = {"port": (1, 65535), "seconds": (0.0, 10.0), "packets": (0, 100_000), "payload": (1, 65_000)}


class HeardAnswer(Message):
    """Answers Heard."""

    tcp_bytes: int
    tcp_seconds: float
    udp_packets: int


class Heard(Request[HeardAnswer]):
    """Close the receiving end of a network probe and report what arrived."""

    token: str


class TakeFingerprintAnswer(Message):
    """Answers TakeFingerprint."""

    fingerprint: Any
    """Plain form of a Fingerprint; `read_fingerprint` checks it. An agent starts faster without dataclasses."""


class TakeFingerprint(Request[TakeFingerprintAnswer]):
    """Measure how fast the machine is, for about a second. Nothing else should run there."""


class Quit(Request[Done]):
    """End the agent and everything that it started."""

    grace_s: float = 2.0
    limits = {"grace_s": (0.0, 3600.0)}
