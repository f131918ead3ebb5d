"""Children: starts processes, each the head of a session, and ends them with all that came of them.

The ladder: SIGTERM to the process; after the grace SIGKILL to its whole family; and again until nobody is left.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Callable, Dict, Iterable, List, Mapping, NamedTuple, Optional, Protocol, Sequence, Set

from driple.agents.daemon.event_loop import Loop, Timer
from driple.agents.daemon.journal import Records
from driple.agents.daemon.line_streams import Outlet
from driple.agents.daemon.procfs import TOKEN_VARIABLE, Family, die_with, kill, process, processes
from driple.agents.daemon.reaper import Reaper
from driple.agents.daemon.relay import Relay
from driple.contracts.errors import BadInput, shown

# For those who were sent SIGKILL. Only a process within the kernel can take longer, on a dead disk or driver.
PATIENCE_S = 10.0
LIMIT_GRACE_S = 5.0
# What a process may be told that it does not read.
UNREAD_LIMIT = 4_000_000

_PAUSE_S = 0.02
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC


class Listener(Protocol):
    """Whom it tells."""

    def said(self, name: str, line: str, cut: bool) -> bool:
        """A line of a talking process; False if there is no room for it."""

    def ended(self, name: str, pid: int, exit_code: int) -> None:
        """A process ended."""

    def trouble(self, name: str, what: str) -> None:
        """Something is not as it should be."""


class Order(NamedTuple):
    """A process to start."""

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    """In addition to our own."""
    cwd: Path
    stdout: Optional[Path]
    """None: nowhere, or to the controller if it talks."""
    stderr: Path
    talk: bool
    lifeline: bool
    """Whether its stdin is a pipe that closes when we end."""
    limit_s: float


class Child:
    """A process that was started, until nobody of its family is left."""

    def __init__(self, name: str, family: Family, stdin: int) -> None:
        self.name = name
        self.family = family
        self.stdin = stdin
        self.outlet: Optional[Outlet] = None
        self.relay: Optional[Relay] = None
        self.limit: Optional[Timer] = None
        self.kill_at_s: Optional[float] = None
        self.killed_s: Optional[float] = None
        self.exit_code: Optional[int] = None


class Stopped:
    """What became of those who were to stop."""

    def __init__(self) -> None:
        self.ended: Dict[str, int] = {}
        self.killed: List[str] = []
        self.left: List[str] = []
        """Those of whose family somebody lives on, deaf even to SIGKILL."""


class _Stop(NamedTuple):
    waiting: List[Child]
    done: Callable[[Stopped], None]
    result: Stopped


class Children:
    """All of them."""

    def __init__(self, loop: Loop, reaper: Reaper, records: Records, listener: Listener) -> None:
        self._loop = loop
        self._reaper = reaper
        self._records = records
        self._listener = listener
        self._living: Dict[str, Child] = {}
        self._leaving: List[Child] = []
        self._stops: List[_Stop] = []

    def start(self, order: Order) -> int:
        """Starts a process and gives its number.

        Raises:
            BadInput: the name is taken, or it cannot be started.
            OSError: the disk is full, or the host's tables are.
        """
        if order.name in self._living:
            raise BadInput(f"{shown(order.name)} runs already, with pid {self._living[order.name].family.pid}")
        token = os.urandom(16).hex()
        self._records.keep(order.name, token)
        fds: List[int] = []  # ours and the child's ends; those that stay with us are taken out
        try:
            child = self._launch(order, token, fds)
        except BaseException:
            self._records.drop(token)
            raise
        finally:
            for fd in fds:
                os.close(fd)
        self._living[order.name] = child
        child.limit = self._loop.after(order.limit_s, lambda: self._over(child, order.limit_s))
        self._reaper.expect(child.family.pid, lambda code: self._ended(child, code))
        with suppress(OSError):  # a disk that is full now: the token in the first record tells enough
            self._records.keep(order.name, token, child.family)
        return child.family.pid

    def tell(self, name: str, line: str) -> None:
        """A line to a process's stdin.

        Raises:
            BadInput: there is no such process, it has no ear, or it has not listened for long.
        """
        child = self._living.get(name)
        if child is None or child.outlet is None:
            raise BadInput(f"{shown(name)}: no such process runs here that talks")
        if not child.outlet.open:
            raise BadInput(f"{shown(name)}: it has closed its stdin")
        data = line.encode("utf-8") + b"\n"
        if child.outlet.waiting + len(data) > UNREAD_LIMIT:
            raise BadInput(f"{shown(name)}: it does not read what it is told: {child.outlet.waiting} bytes wait")
        child.outlet.put(data)

    def pid(self, name: str) -> Optional[int]:
        """The number of a process that lives."""
        child = self._living.get(name)
        return None if child is None else child.family.pid

    def stop(self, names: Optional[Iterable[str]], grace_s: float, done: Callable[[Stopped], None]) -> None:
        """Ends processes, or all of them, by the ladder; calls when nobody of their families is left."""
        wanted: Optional[Set[str]] = None if names is None else set(names)
        stop = _Stop([child for child in self._all() if wanted is None or child.name in wanted], done, Stopped())
        for child in stop.waiting:
            if child.exit_code is None:
                self._terminate(child, grace_s)
        self._stops.append(stop)
        self._settle()

    @property
    def empty(self) -> bool:
        """Whether nobody is left."""
        return not self._living and not self._leaving

    # ---- within ----

    def _all(self) -> List[Child]:
        return [*self._living.values(), *self._leaving]

    def _launch(self, order: Order, token: str, fds: List[int]) -> Child:
        nothing = _opened(Path(os.devnull), os.O_RDWR | os.O_CLOEXEC, fds)
        stdin, hold = nothing, -1
        if order.talk or order.lifeline:
            stdin, hold = os.pipe2(os.O_CLOEXEC)
            fds += (stdin, hold)
        stderr = _opened(order.stderr, _APPEND, fds)
        stdout, hear = nothing, -1
        if order.talk:
            hear, stdout = os.pipe2(os.O_CLOEXEC)
            fds += (hear, stdout)
        elif order.stdout is not None:
            stdout = _opened(order.stdout, _APPEND, fds)
        parent = os.getpid()
        try:
            started = subprocess.Popen(
                order.argv,
                stdin=stdin,
                stdout=stdout,
                stderr=stderr,
                cwd=order.cwd,
                env={**os.environ, **order.env, TOKEN_VARIABLE: token},
                start_new_session=True,
                preexec_fn=lambda: die_with(parent),
            )
        except OSError as error:
            raise BadInput(f"{order.name}: {error.filename or order.argv[0]}: {error.strerror}") from None
        except (ValueError, subprocess.SubprocessError) as error:  # a NUL in a word, `=` in a variable's name
            raise BadInput(f"{order.name}: {error}") from None
        started.returncode = 0  # the reaper waits for it, so this object must not
        one = process(started.pid)  # nobody else reaps, so it is there, even dead
        family = Family(started.pid, one.start if one else 0, token)
        child = Child(order.name, family, hold)
        for kept in (hold, hear):
            if kept >= 0:
                fds.remove(kept)
        if order.talk:
            child.outlet = Outlet(self._loop, hold, 2 * UNREAD_LIMIT, lambda _: None)
            child.relay = Relay(
                self._loop,
                hear,
                lambda line, cut: self._listener.said(order.name, line, cut),
                lambda what: self._listener.trouble(order.name, what),
            )
        return child

    def _over(self, child: Child, limit_s: float) -> None:
        self._listener.trouble(child.name, f"ran for {limit_s:g} s, which is its limit: it is stopped")
        self._terminate(child, LIMIT_GRACE_S)

    def _terminate(self, child: Child, grace_s: float) -> None:
        if child.kill_at_s is None:
            os.kill(child.family.pid, signal.SIGTERM)  # it is reaped only by us, so the number is still its own
        at_s = time.monotonic() + grace_s
        if child.killed_s is None and (child.kill_at_s is None or at_s < child.kill_at_s):
            child.kill_at_s = at_s
            self._loop.after(grace_s, lambda: self._kill(child))

    def _kill(self, child: Child) -> None:
        """The last rung, for one that still lives."""
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
        """Ends what a process left behind, and looks again until that is gone."""
        left = child.family.members(processes())
        if left and time.monotonic() < since_s + PATIENCE_S:
            kill(left)
            self._loop.after(_PAUSE_S, lambda: self._clear(child, since_s))
            return
        self._leaving.remove(child)
        if left:
            pids = ", ".join(map(str, sorted(left)))
            self._listener.trouble(child.name, f"its processes {pids} do not end, even by SIGKILL")
        else:
            self._records.drop(child.family.token)
        self._settle(left=[child.name] if left else [])

    def _settle(self, left: Sequence[str] = ()) -> None:
        """Tells those who wait for an end."""
        now_s = time.monotonic()
        for stop in list(self._stops):
            result = stop.result
            for child in list(stop.waiting):
                deaf = child.exit_code is None and child.killed_s is not None and now_s >= child.killed_s + PATIENCE_S
                if child.exit_code is not None and child not in self._leaving:
                    result.ended[child.name] = child.exit_code
                elif not deaf:
                    continue
                stop.waiting.remove(child)
                if child.killed_s is not None:
                    result.killed.append(child.name)
                if deaf or child.name in left:
                    result.left.append(child.name)
            if not stop.waiting:
                self._stops.remove(stop)
                stop.done(result)


def _opened(path: Path, flags: int, fds: List[int]) -> int:
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, flags, 0o666)
    fds.append(fd)
    return fd
