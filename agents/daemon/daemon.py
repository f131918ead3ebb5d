"""Agent daemon: the one process of ours on a host. It starts, watches and ends all others there for the controller.

Messages are lines of JSON: requests and their answers (contracts/protocol/requests.py), events (events.py) and clock
probes (clock.py).

It ends, together with everything that it started, on `quit`, when its stdin closes, on a signal, and when the
controller has been silent for too long or does not read.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from typing import List, NamedTuple, Optional

from driple.agents.daemon.cleanup import Cleanup
from driple.agents.daemon.event_loop import READ, Loop
from driple.agents.daemon.handlers import Handlers
from driple.agents.daemon.journal import Journal
from driple.agents.daemon.line_streams import CHUNK, Line, LineBuffer, OutputQueue
from driple.agents.daemon.processes import PATIENCE_S
from driple.agents.daemon.procfs import descendants, kill, processes
from driple.agents.daemon.reaper import Reaper
from driple.agents.daemon.work_dir import WorkDir
from driple.agents.hostinfo.host_facts import host_facts
from driple.contracts.errors import RunFailed
from driple.contracts.protocol import events
from driple.contracts.protocol.clock import CLOCK, clock_answer
from driple.contracts.protocol.message import Tagged

ENDED, ORPHANED = 0, 3  # exit codes

REQUEST_LIMIT = 64_000_000
# If more than this waits for the controller, it counts as gone.
UNREAD_BYTES = 8_000_000
END_GRACE_S = 2.0

_FLUSH_S = 2.0
_LOCK_PAUSE_S = 0.1
_CLOCK = CLOCK.encode("ascii")


class Settings(NamedTuple):
    """Options of the command line."""

    work: str
    owner: str  # who uses the host; shown to others who wait for it
    wait_s: float = 0.0  # how long to wait while another agent uses the host
    orphan_s: float = 30.0  # after this time without a line the controller counts as gone


class Daemon:
    """The agent from its lock to the end of its last process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._exit: Optional[int] = None
        self._grace_s = END_GRACE_S
        self._loop = Loop()
        self._out = OutputQueue(self._loop, sys.stdout.fileno(), UNREAD_BYTES, self._not_reading)
        self._in = sys.stdin.fileno()
        self._lines = LineBuffer(REQUEST_LIMIT)
        self._early: List[Line] = []
        self._handlers: Optional[Handlers] = None
        self._last_line_s = 0.0
        self._reaper = Reaper(self._loop)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._signalled)
        self._loop.watch(self._in, READ, self._read)

    def run(self) -> int:
        """Serves until the end; the exit code. Raises RunFailed if the host is in use or its folder is not usable."""
        try:
            try:
                self._begin()
            except OSError as error:
                raise self._failed(f"{error.filename or self._settings.work}: {error.strerror}") from None
            if self._handlers is not None:
                self._serve(self._handlers)
        finally:
            self._end()
        return ENDED if self._exit is None else self._exit

    def _begin(self) -> None:
        """Waits for the host, ends what an earlier agent left on it, and reports `ready`."""
        work = WorkDir(self._settings.work)
        until_s = time.monotonic() + self._settings.wait_s
        reported = False
        while not work.take(self._settings.owner):
            holder = work.holder()
            if not reported:
                self._send(holder)
                reported = True
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise self._failed(f"host is used by {holder.owner} (pid {holder.pid})")
            self._loop.turn(min(left_s, _LOCK_PAUSE_S))
            if self._exit is not None:
                return
        journal = Journal(work.path)
        left = journal.end_left()
        self._cleanup = Cleanup(work.path)
        self._clean_up()
        self._handlers = Handlers(self._loop, self._reaper, work, journal, self._out, self._quit)
        self._send(host_facts(work, left))

    def _serve(self, handlers: Handlers) -> None:
        self._last_line_s = time.monotonic()
        self._watch_controller()
        early, self._early = self._early, []
        for line in early:
            self._handle(handlers, line)
        while self._exit is None:
            self._loop.turn()

    def _end(self) -> None:
        self._loop.forget(self._in)
        if self._handlers is not None:
            children = self._handlers.processes
            children.stop(None, self._grace_s, lambda _: None)
            end_s = time.monotonic() + self._grace_s + 2 * PATIENCE_S
            while not children.empty and time.monotonic() < end_s:
                self._loop.turn(1.0)
            self._end_rest()
            self._clean_up()
        end_s = time.monotonic() + _FLUSH_S
        while self._out.waiting and time.monotonic() < end_s:
            self._loop.turn(_FLUSH_S)

    def _clean_up(self) -> None:
        for name in self._cleanup.now():
            complain(f"{name}: could not be reverted")

    def _end_rest(self) -> None:
        """Ends forked calls, and orphans that cleared every trace of their origin."""
        end_s = time.monotonic() + PATIENCE_S
        me = os.getpid()
        while True:
            table = processes()
            left = [pid for pid in descendants(table, [me]) - {me} if not table[pid].dead]
            if not left:
                return
            if time.monotonic() > end_s:
                complain(f"processes {', '.join(map(str, left))} do not end, even by SIGKILL")
                return
            kill(left)
            self._loop.turn(0.02)

    def _failed(self, why: str) -> RunFailed:
        self._send(events.Failed(why=why))
        return RunFailed(f"driple-agent: error: {why}")

    def _signalled(self, *_: object) -> None:
        if self._exit is not None:  # the second signal: no more grace
            self._grace_s = 0.0
            self._loop.after(0.0, self._hurry)
        self._exit = ENDED if self._exit is None else self._exit

    def _hurry(self) -> None:
        if self._handlers is not None:
            self._handlers.processes.stop(None, 0.0, lambda _: None)

    def _quit(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._exit = ENDED

    def _watch_controller(self) -> None:
        """Wakes only when the silence may have become too long, so that a line need not move a timer."""
        silent_s = time.monotonic() - self._last_line_s
        if silent_s < self._settings.orphan_s:
            self._loop.after(self._settings.orphan_s - silent_s, self._watch_controller)
        elif self._exit is None:
            complain(f"no line from the controller for {silent_s:.0f} s: ending everything")
            self._exit = ORPHANED

    def _not_reading(self, error: Optional[OSError]) -> None:
        if error is None and self._exit is None:
            complain(f"the controller does not read, {UNREAD_BYTES} bytes are waiting: ending everything")
            self._exit = ORPHANED
        self._exit = ENDED if self._exit is None else self._exit

    def _read(self) -> None:
        data = os.read(self._in, CHUNK)
        if not data:
            self._loop.forget(self._in)
            self._exit = ENDED if self._exit is None else self._exit
            return
        for line in self._lines.feed(data):
            self._last_line_s = time.monotonic()
            if self._handlers is None:
                self._early.append(line)
            else:
                self._handle(self._handlers, line)

    def _handle(self, handlers: Handlers, line: Line) -> None:
        if line.text.startswith(_CLOCK):
            self._out.put(clock_answer(line.text.decode("utf-8", "replace")).encode("utf-8") + b"\n")
        elif line.text.strip() and self._exit is None:  # nothing new after `quit`
            handlers.handle(line)

    def _send(self, event: Tagged) -> None:
        self._out.put(event.to_line().encode("ascii") + b"\n")


def complain(what: str) -> None:
    """Prints a line on stderr, which nobody may be there to read."""
    with suppress(OSError):  # a closed stderr must not stop the caller
        print(f"driple-agent: {what}", file=sys.stderr, flush=True)
