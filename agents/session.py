"""One sampling from beginning to end: open the sources, start the command, loop, seal. Nothing is left behind."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple

from driple.agents.carried import import_light
from driple.agents.clock import Ticker, raise_priority
from driple.agents.control import Control, say
from driple.agents.flows import FlowTable
from driple.agents.host import HostSource
from driple.agents.nic import NicSource
from driple.agents.perf import MemoryTrafficSource
from driple.agents.process import TaskMemorySource, TaskSource
from driple.agents.sampler import Sampler, Table, machine, streams_of
from driple.agents.seal import seal
from driple.agents.source import Source
from driple.agents.spec import SampleSpec
from driple.agents.tree import ProcessTree
from driple.agents.writer import DiskFull, SampleWriter, check_out
from driple.contracts.errors import BadInput

log = logging.getLogger(__name__)

_CHILD_GRACE_S = 10.0


@dataclass
class Outcome:
    """What a sampling left."""

    summary: Dict[str, Any]
    files: Dict[Path, int]
    """Rows of each Parquet file."""
    command_exit: Optional[int]
    """Exit code of the wrapped command as a shell gives it; None if there was none."""


def sample(spec: SampleSpec, progress: Optional[Callable[[Ticker, int], None]] = None) -> Outcome:
    """Does what the spec says.

    Raises:
        BadInput: something that was asked for is not there (nothing was started then), or the disk is full (what was
            sampled so far is then kept, and the message says where).
    """
    out = Path(spec.out)
    check_out(out)
    parts = _Parts(spec)
    with ExitStack() as stack:
        # All that can be wrong with what was asked for is said before the command starts.
        parts.open_host(stack)
        if spec.pid is not None:
            parts.open_task(spec.pid, stack)
        writer = SampleWriter(out, streams_of(parts.sources, parts.tables), {"asked": _asked(spec), **machine()})
        stack.callback(writer.discard_if_empty)
        child = _start(spec) if spec.command else None
        if child is not None:
            stack.callback(_end, child)
            parts.open_task(child.pid, stack)
        control = stack.enter_context(
            Control(spec.for_s, spec.limit_s, spec.watch_stdin, lambda: _over(child) if child else parts.ended())
        )
        # After the start of the command, which must run as if nobody watched.
        facts = {"priority": raise_priority() if spec.realtime else {"policy": "other", "asked": False}}
        ticker = Ticker(spec.hz, control.wait)
        sampler = Sampler(parts.sources, parts.tables, writer, ticker, control, facts, progress)
        if spec.watch_stdin:
            say("ready")
        summary = _run(sampler, control, writer, out, child)
        exit_code = None
        if child is not None and control.reason != "duration":
            exit_code = _finish_command(child, control)
        files = _seal(writer, out)
        if child is not None and control.reason == "duration":
            exit_code = _wait_for_command(child, control)
    return Outcome({"asked": _asked(spec), **machine(), **summary}, files, exit_code)


class _Parts:
    """The sources and tables that a spec asks for, the host's own first."""

    def __init__(self, spec: SampleSpec) -> None:
        self.tables: List[Table] = []
        self._host: List[Source] = [NicSource(name, i) for i, name in enumerate(spec.nic)]
        self._task: List[Source] = []
        if spec.gpu:
            with suppress(ImportError):  # GpuSource says what that means
                import_light("pynvml")
            from driple.agents.gpu import GpuSource

            self._host += [GpuSource(wanted, i, spec.hz) for i, wanted in enumerate(spec.gpu)]
        self._host.append(HostSource(spec.hz))
        self._tree = ProcessTree()
        self._watched: Optional[TaskMemorySource] = None
        if spec.pid is not None or spec.command:
            self._watched = TaskMemorySource(self._tree, spec.hz)
            self._task = [TaskSource(self._tree), self._watched, MemoryTrafficSource(self._tree, spec.hz)]
        if spec.flows_hz is not None:
            flows = FlowTable(spec.hz, spec.flows_hz)
            flows.task_sockets = self._tree.sockets if self._task else None
            self.tables.append(flows)

    @property
    def sources(self) -> List[Source]:
        return self._host + self._task

    def open_host(self, stack: ExitStack) -> None:
        for source in self._host:
            stack.callback(source.close)
            source.open()
        for table in self.tables:
            stack.callback(table.close)
            table.open()

    def open_task(self, pid: int, stack: ExitStack) -> None:
        self._tree.root = pid
        for source in self._task:
            stack.callback(source.close)
            source.open()

    def ended(self) -> Optional[str]:
        return self._watched.ended() if self._watched is not None else None


def _run(
    sampler: Sampler, control: Control, writer: SampleWriter, out: Path, child: Optional[subprocess.Popen[bytes]]
) -> Dict[str, Any]:
    try:
        sampler.run()
        return sampler.finish()
    except DiskFull as error:
        kept = _kept(error, writer, out)
        if child is not None:  # our disk is no reason to end somebody's training
            log.warning("sampling ended, the command goes on: %s", kept)
            _wait_for_command(child, control)
        raise kept from None


def _seal(writer: SampleWriter, out: Path) -> Dict[Path, int]:
    writer.close()
    try:
        return seal(writer.path, out)
    except DiskFull as error:
        raise _kept(error, writer, out) from None


def _kept(error: DiskFull, writer: SampleWriter, out: Path) -> DiskFull:
    """Seals what there is if that still fits, and says in one line where it is."""
    writer.close()
    if writer.empty:
        return error
    with suppress(BadInput):
        files = seal(writer.path, out)
        return DiskFull(f"{error}; what was sampled until then is in {out} ({files[out]} rows)")
    return DiskFull(f"{error}; what was sampled until then is kept: make room, then driple-sample --seal {writer.path}")


def _asked(spec: SampleSpec) -> Dict[str, Any]:
    return {name: value for name, value in vars(spec).items() if value not in (None, (), {}, False)}


def _start(spec: SampleSpec) -> subprocess.Popen[bytes]:
    try:
        # Under a controller the command gets a session of its own, to be ended as a whole, and no stdin: that is the
        # controller's channel. In a terminal it stays in the foreground, where Ctrl-C reaches it.
        return subprocess.Popen(
            spec.command,
            stdin=subprocess.DEVNULL if spec.watch_stdin else None,
            start_new_session=spec.watch_stdin,
        )
    except OSError as error:
        raise BadInput(f"-- {spec.command[0]}: {error.strerror}; expected a command that can be run") from None


def _over(child: subprocess.Popen[bytes]) -> Optional[str]:
    return None if child.poll() is None else "command ended"


def _finish_command(child: subprocess.Popen[bytes], control: Control) -> int:
    """Its exit code as a shell gives it. A command that still runs when we were told to go has to go too."""
    if control.reason == "signal SIGINT" and child.poll() is None:
        # A terminal has sent its Ctrl-C to the command as well; a second one would break off what it does about it.
        if not sys.stdin.isatty():
            child.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            child.wait(_CHILD_GRACE_S)
    _end(child)
    code = child.returncode
    return code if code >= 0 else 128 - code


def _wait_for_command(child: subprocess.Popen[bytes], control: Control) -> int:
    """Its exit code, once it has ended by itself or we were told to go."""
    while child.poll() is None and control.told is None:
        control.wait(0.5)
        control.look_at_limit()
    return _finish_command(child, control)


def _end(child: subprocess.Popen[bytes]) -> None:
    """Terminates a command that still runs: first politely, then not. Safe to call twice."""
    ladder: Tuple[Tuple[signal.Signals, Optional[float]], ...] = (
        (signal.SIGTERM, _CHILD_GRACE_S),
        (signal.SIGKILL, None),
    )
    for number, patience in ladder:
        if child.poll() is not None:
            return
        with suppress(ProcessLookupError):
            if os.getpgid(child.pid) == child.pid:
                os.killpg(child.pid, number)
            else:
                child.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            child.wait(patience)
