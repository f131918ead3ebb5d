"""Starts processes, each the leader of a session, and ends them with all their descendants.

Stopping: SIGTERM to the process; after a grace period SIGKILL to all its descendants, repeated until none is left.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Callable, Dict, Iterable, List, NamedTuple, Optional, Protocol, Sequence, Set

from driple.agents.daemon.event_loop import Loop, Timer
from driple.agents.daemon.journal import Journal
from driple.agents.daemon.line_streams import OutputQueue
from driple.agents.daemon.procfs import TOKEN_VARIABLE, Family, die_with, kill, process, processes
from driple.agents.daemon.reaper import Reaper
from driple.agents.daemon.relay import Relay
from driple.agents.daemon.work_dir import WorkDir, expand_arguments
from driple.contracts.errors import BadInput, shown
from driple.contracts.protocol.requests import Start, StopAnswer

# After SIGKILL. Only a process stuck in the kernel takes longer, on a dead disk or driver.
PATIENCE_S = 10.0
LIMIT_GRACE_S = 5.0
UNREAD_LIMIT = 4_000_000  # limit of input that a process has not read yet

_PAUSE_S = 0.02
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class Listener(Protocol):
    """Receives the events of processes."""

    def said(self, name: str, line: str, cut: bool) -> bool:
        """A line on the stdout of a process. Returns False if there is no room for it."""

    def ended(self, name: str, pid: int, exit_code: int) -> None:
        """A process ended."""

    def trouble(self, name: str, what: str) -> None:
        """A problem with a process."""


class Child:
    """A process that was started, until none of its descendants is left."""

    def __init__(self, name: str, family: Family, stdin: int) -> None:
        self.name = name
        self.family = family
        self.stdin = stdin
        self.outlet: Optional[OutputQueue] = None
        self.relay: Optional[Relay] = None
        self.limit: Optional[Timer] = None
        self.kill_at_s: Optional[float] = None
        self.killed_s: Optional[float] = None
        self.exit_code: Optional[int] = None


class _Stop(NamedTuple):
    waiting: List[Child]
    done: Callable[[StopAnswer], None]
    result: StopAnswer


class Processes:
    """All processes of the agent."""

    def __init__(self, loop: Loop, reaper: Reaper, journal: Journal, listener: Listener) -> None:
        self._loop = loop
        self._reaper = reaper
        self._journal = journal
        self._listener = listener
        self._living: Dict[str, Child] = {}
        self._leaving: List[Child] = []
        self._stops: List[_Stop] = []

    def start(self, order: Start, work: WorkDir) -> int:
        """Starts a process and returns its pid. Raises BadInput if the name is taken or it cannot start, or OSError."""
        if order.name in self._living:
            raise BadInput(f"{shown(order.name)} runs already, with pid {self._living[order.name].family.pid}")
        token = os.urandom(16).hex()
        self._journal.keep(order.name, token)
        fds: List[int] = []  # all descriptors to close here; those that we keep are removed from the list
        try:
            child = self._launch(order, work, token, fds)
        except BaseException:
            self._journal.drop(token)
            raise
        finally:
            for fd in fds:
                os.close(fd)
        self._living[order.name] = child
        child.limit = self._loop.after(order.limit_s, lambda: self._over(child, order.limit_s))
        self._reaper.expect(child.family.pid, lambda code: self._ended(child, code))
        with suppress(OSError):  # the disk is full now: the token in the first record is enough
            self._journal.keep(order.name, token, child.family)
        return child.family.pid

    def tell(self, name: str, line: str) -> None:
        """Sends a line to the stdin of a process. Raises BadInput if there is none with `talk`, or it does not read."""
        child = self._living.get(name)
        if child is None or child.outlet is None:
            raise BadInput(f"{shown(name)}: no such process was started with talk")
        if not child.outlet.open:
            raise BadInput(f"{shown(name)}: it closed its stdin")
        data = line.encode("utf-8") + b"\n"
        if child.outlet.waiting + len(data) > UNREAD_LIMIT:
            raise BadInput(f"{shown(name)}: it does not read its stdin: {child.outlet.waiting} bytes are waiting")
        child.outlet.put(data)

    def pid(self, name: str) -> Optional[int]:
        child = self._living.get(name)
        return None if child is None else child.family.pid

    def stop(self, names: Optional[Iterable[str]], grace_s: float, done: Callable[[StopAnswer], None]) -> None:
        """Stops processes, or all of them; calls `done` when none of their descendants is left."""
        wanted: Optional[Set[str]] = None if names is None else set(names)
        stop = _Stop(
            [child for child in self._all() if wanted is None or child.name in wanted],
            done,
            StopAnswer(ended={}, killed=()),
        )
        for child in stop.waiting:
            if child.exit_code is None:
                self._terminate(child, grace_s)
        self._stops.append(stop)
        self._settle()

    @property
    def empty(self) -> bool:
        return not self._living and not self._leaving

    def _all(self) -> List[Child]:
        return [*self._living.values(), *self._leaving]

    def _launch(self, order: Start, work: WorkDir, token: str, fds: List[int]) -> Child:
        import subprocess  # not at the start of the agent, of which it would take a tenth

        argv = expand_arguments(order.argv)
        nothing = _opened(Path(os.devnull), os.O_RDWR | os.O_CLOEXEC, fds)
        stdin, hold = nothing, -1
        if order.talk or order.lifeline:
            stdin, hold = os.pipe2(os.O_CLOEXEC)
            fds += (stdin, hold)
        stderr = _opened(work.inside(order.stderr), _APPEND, fds)
        stdout, hear = nothing, -1
        if order.talk:
            hear, stdout = os.pipe2(os.O_CLOEXEC)
            fds += (hear, stdout)
        elif order.stdout is not None:
            stdout = _opened(work.inside(order.stdout), _APPEND, fds)
        parent = os.getpid()
        try:
            started = subprocess.Popen(
                argv,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=work.under(order.cwd),
                env={**os.environ, **(order.env or {}), TOKEN_VARIABLE: token},
                start_new_session=True,
                preexec_fn=lambda: die_with(parent),
            )
        except OSError as error:
            raise BadInput(f"{order.name}: {error.filename or argv[0]}: {error.strerror}") from None
        except (ValueError, subprocess.SubprocessError) as error:  # a NUL in an argument, `=` in a variable's name
            raise BadInput(f"{order.name}: {error}") from None
        started.returncode = 0  # the reaper waits for it, this object must not
        one = process(started.pid)  # it exists even if dead, as only we reap it
        family = Family(started.pid, one.start if one else 0, token)
        child = Child(order.name, family, hold)
        for kept in (hold, hear):
            if kept >= 0:
                fds.remove(kept)
        if order.talk:
            child.outlet = OutputQueue(self._loop, hold, 2 * UNREAD_LIMIT, lambda _: None)
            child.relay = Relay(
                self._loop,
                hear,
                lambda line, cut: self._listener.said(order.name, line, cut),
                lambda what: self._listener.trouble(order.name, what),
            )
        return child

    def _over(self, child: Child, limit_s: float) -> None:
        self._listener.trouble(child.name, f"reached its time limit of {limit_s:g} s and is stopped")
        self._terminate(child, LIMIT_GRACE_S)

    def _terminate(self, child: Child, grace_s: float) -> None:
        if child.kill_at_s is None:
            os.kill(child.family.pid, signal.SIGTERM)  # only we reap it, so the pid is still its own
        at_s = time.monotonic() + grace_s
        if child.killed_s is None and (child.kill_at_s is None or at_s < child.kill_at_s):
            child.kill_at_s = at_s
            self._loop.after(grace_s, lambda: self._kill(child))

    def _kill(self, child: Child) -> None:
        if child.exit_code is None and child.killed_s is None:
            child.killed_s = time.monotonic()
            kill({child.family.pid} | child.family.members(processes()))
            self._loop.after(PATIENCE_S, lambda: self._settle())

    def _ended(self, child: Child, exit_code: int) -> None:
        child.exit_code = exit_code
        if child.limit is not None:
            child.limit.cancel()
        if child.outlet is not None:
            child.outlet.close()
        if child.relay is not None:
            child.relay.finish()
        if child.stdin >= 0:
            os.close(child.stdin)
        del self._living[child.name]
        self._leaving.append(child)
        self._listener.ended(child.name, child.family.pid, exit_code)
        self._clear(child, time.monotonic())

    def _clear(self, child: Child, since_s: float) -> None:
        """Ends the descendants that a process left, and checks again until none is left."""
        left = child.family.members(processes())
        if left and time.monotonic() < since_s + PATIENCE_S:
            kill(left)
            self._loop.after(_PAUSE_S, lambda: self._clear(child, since_s))
            return
        self._leaving.remove(child)
        if left:
            pids = ", ".join(map(str, sorted(left)))
            self._listener.trouble(child.name, f"its processes {pids} survived SIGKILL")
        else:
            self._journal.drop(child.family.token)
        self._settle(left=[child.name] if left else [])

    def _settle(self, left: Sequence[str] = ()) -> None:
        now_s = time.monotonic()
        for stop in list(self._stops):
            result = stop.result
            for child in list(stop.waiting):
                stuck = child.exit_code is None and child.killed_s is not None and now_s >= child.killed_s + PATIENCE_S
                if child.exit_code is not None and child not in self._leaving:
                    result.ended[child.name] = child.exit_code
                elif not stuck:
                    continue
                stop.waiting.remove(child)
                if child.killed_s is not None:
                    result.killed += (child.name,)
                if stuck or child.name in left:
                    result.left += (child.name,)
            if not stop.waiting:
                self._stops.remove(stop)
                stop.done(result)


def _opened(path: Path, flags: int, fds: List[int]) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, flags, 0o666)
    fds.append(fd)
    return fd
