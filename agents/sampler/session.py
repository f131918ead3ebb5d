"""One sampling session: open the sources, start the command, loop, seal. No process or file is left behind."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

from driple.agents.daemon.procfs import descendants, processes
from driple.agents.sampler.samples_writer import DiskFull, SampleWriter, check_out
from driple.agents.sampler.sampling_loop import Sampler, Table, machine, streams_of
from driple.agents.sampler.seal import seal
from driple.agents.sampler.stop_control import Control, say
from driple.agents.sampler.ticker import Ticker, lower_priority, niceness, raise_priority
from driple.agents.sources.base import Source
from driple.agents.sources.host_usage import HostSource
from driple.agents.sources.memory_traffic import MemoryTrafficSource
from driple.agents.sources.nic import NicSource
from driple.agents.sources.process_tree import ProcessTree
from driple.agents.sources.task_usage import TaskMemorySource, TaskSource
from driple.agents.sources.tcp_flows import FlowTable
from driple.contracts.errors import BadInput
from driple.contracts.protocol.sampler_lines import READY
from driple.contracts.protocol.sampler_spec import SamplerSpec

log = logging.getLogger(__name__)

_CHILD_GRACE_S = 10.0


@dataclass
class Outcome:
    """Result of a session."""

    summary: Dict[str, Any]
    files: Dict[Path, int]  # rows of each Parquet file
    command_exit: Optional[int]  # exit code of the wrapped command as a shell gives it; None if there was none


def sample(spec: SamplerSpec, progress: Optional[Callable[[Ticker, int], None]] = None) -> Outcome:
    """Samples as specified.

    Raises:
        BadInput: something that was asked for is not there (nothing was started then), or the disk is full (what was
            sampled so far is then kept, and the message says where).
    """
    out = Path(spec.out)
    check_out(out)
    parts = _Parts(spec)
    with ExitStack() as stack:
        # Everything that can be wrong with the spec is reported before the command starts.
        parts.open_host(stack)
        if spec.pid is not None:
            parts.open_task(spec.pid, stack)
        # Before anything is made or started: from here on a signal is a stop, and leaves nothing.
        control = stack.enter_context(Control(spec.for_s, spec.limit_s, spec.watch_stdin))
        writer = SampleWriter(out, streams_of(parts.sources, parts.tables), {"asked": _asked(spec), **machine()})
        stack.callback(writer.discard_if_empty)
        command = _Command(spec) if spec.command else None
        if command is not None:
            stack.callback(command.end)
            parts.open_task(command.pid, stack)
        # After the start of the command, which must run as if nobody watched.
        nice = niceness()
        facts = {"priority": raise_priority() if spec.realtime else {"policy": "other", "asked": False}}
        ticker = Ticker(spec.hz, control.wait)
        control.begin(command.over if command else parts.ended)
        sampler = Sampler(parts.sources, parts.tables, writer, ticker, control, facts, progress)
        if spec.watch_stdin:
            say(READY)
        try:
            summary = _run(sampler, control, nice)
        except DiskFull as error:
            kept = _kept(error, writer, out)
            if command is not None:  # a full disk must not end the training
                log.warning("sampling ended, the command goes on: %s", kept)
                command.wait(control)
            raise kept from None
        exit_code = None
        if command is not None and control.reason != "duration":
            exit_code = command.finish(control)
        files = _seal(writer, out)
        if command is not None and control.reason == "duration":
            exit_code = command.wait(control)
    return Outcome({"asked": _asked(spec), **machine(), **summary}, files, exit_code)


class _Parts:
    def __init__(self, spec: SamplerSpec) -> None:
        self.tables: List[Table] = []
        self._host: List[Source] = [NicSource(name, i) for i, name in enumerate(spec.nic)]
        self._task: List[Source] = []
        if spec.gpu:
            from driple.agents.sources.gpu.gpu_source import GpuSource
            from driple.agents.sources.gpu.registry import import_bindings

            import_bindings()
            self._host += [GpuSource(wanted, i, spec.hz) for i, wanted in enumerate(spec.gpu)]
        self._host.append(HostSource(spec.hz))
        self._tree = ProcessTree()
        self._watched: Optional[TaskMemorySource] = None
        if spec.pid is not None or spec.command:
            self._watched = TaskMemorySource(self._tree, spec.hz)
            self._task = [TaskSource(self._tree), self._watched, MemoryTrafficSource(self._tree, spec.hz)]
        if spec.flows_hz is not None:
            flows = FlowTable(spec.hz, spec.flows_hz)
            if self._task:
                flows.task_sockets, flows.task_pids = self._tree.sockets, lambda: self._tree.pids
            self.tables.append(flows)

    @property
    def sources(self) -> List[Source]:
        return self._host + self._task

    def open_host(self, stack: ExitStack) -> None:
        devices: Dict[str, str] = {}
        for source in self._host:
            stack.callback(source.close)
            source.open()
            uuid = source.quality().get("uuid")
            if uuid is not None and devices.setdefault(uuid, source.name) != source.name:
                raise BadInput(f"{source.name} is {devices[uuid]} once more ({uuid}): expected each GPU once")
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


def _run(sampler: Sampler, control: Control, nice: int) -> Dict[str, Any]:
    try:
        sampler.run()
        return sampler.finish()
    finally:
        # What follows has no deadline and may take long: it must neither push others aside nor be cut off.
        lower_priority(nice)
        control.sampled()


def _seal(writer: SampleWriter, out: Path) -> Dict[Path, int]:
    try:
        return seal(writer.path, out)  # still locked: nobody else may do it at the same time
    except DiskFull as error:
        raise _kept(error, writer, out) from None


def _kept(error: DiskFull, writer: SampleWriter, out: Path) -> DiskFull:
    """Seals what was sampled, if there is room, and reports where it is."""
    if writer.empty:
        return error
    with suppress(BadInput):
        files = seal(writer.path, out)
        return DiskFull(f"{error}; what was sampled until then is in {out} ({files[out]} rows)")
    return DiskFull(f"{error}; what was sampled until then is kept: make room, then driple-sample --seal {writer.path}")


def _asked(spec: SamplerSpec) -> Dict[str, Any]:
    return {name: value for name, value in vars(spec).items() if value not in (None, (), {}, False)}


class _Command:
    def __init__(self, spec: SamplerSpec) -> None:
        """Starts it.

        Under a controller it gets a session of its own, no stdin, and our stderr for its output: stdin and stdout are
        the controller's channel. In a terminal it stays in the foreground, where Ctrl-C reaches it.
        """
        try:
            self._child = subprocess.Popen(
                spec.command,
                stdin=subprocess.DEVNULL if spec.watch_stdin else None,
                stdout=2 if spec.watch_stdin else None,
                start_new_session=spec.watch_stdin,
            )
        except OSError as error:
            raise BadInput(f"-- {spec.command[0]}: {error.strerror}; expected a command that can be run") from None
        self.pid = self._child.pid
        self._family: Dict[int, int] = {}

    def over(self) -> Optional[str]:
        return None if self._child.poll() is None else "command ended"

    def wait(self, control: Control) -> int:
        """Its exit code, once it has ended by itself or we were told to go."""
        while self._child.poll() is None and control.told is None:
            control.wait(0.5)
            control.look_at_limit()
        return self.finish(control)

    def finish(self, control: Control) -> int:
        """Its exit code as a shell gives it. A command that still runs when we were told to go has to go too."""
        if control.told == "signal SIGINT" and self._child.poll() is None:
            # A terminal has sent its Ctrl-C to all of it; a second one would break off what it does about it.
            self._tell(None if sys.stdin.isatty() else signal.SIGINT)
        self.end()
        code = self._child.returncode
        return 128 + signal.SIGKILL if code is None else code if code >= 0 else 128 - code

    def end(self) -> None:
        """Ends what still runs: SIGTERM, then SIGKILL. Processes that an ended command left are not touched."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self._child.poll() is not None and not self._family:
                return
            self._tell(number)
        self._family = {}

    def _tell(self, number: Optional[signal.Signals]) -> None:
        """Sends a signal to the command and to all that came from it, and gives them some time to end."""
        self._look()
        for pid in self._family if number is not None else ():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)  # type: ignore[arg-type]
        end, pause = time.monotonic() + _CHILD_GRACE_S, 0.01
        while time.monotonic() < end:
            self._child.poll()  # collects it
            self._look()
            if not self._family:
                return
            time.sleep(pause)
            pause = min(0.2, 2 * pause)

    def _look(self) -> None:
        """Finds running processes: descendants of known ones, and under a controller the whole session."""
        table = {pid: one for pid, one in processes().items() if not one.dead}
        roots = {pid for pid, start in self._family.items() if pid in table and table[pid].start == start}
        roots |= {pid for pid, one in table.items() if one.session == self.pid}
        if self._child.returncode is None:
            roots |= {self.pid} & table.keys()
        self._family = {pid: table[pid].start for pid in descendants(table, roots)}
