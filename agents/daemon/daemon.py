"""Steward: the one process of ours on a host. It starts, watches and ends all others there, as the controller says.

JSON objects, a line each, both ways. What can be asked is in requests.py, with an `id`; an answer is
`{"id": N, "ok": {...}}` or `{"id": N, "error": "one line"}`. Without being asked it says

    {"ready": {...}}      once; before it, {"busy": {...}} while another steward has the host, {"failed": "..."} at last
    {"said": {"name", "line"}}                            a line of a process that talks; "cut": true if it was longer
    {"progress": {"name", "ready", "steps", "last", "finished", "alive"}}       of a task that is followed
    {"ended": {"name", "pid", "exit_code", "mono_ns"}}    of every process that was started
    {"trouble": {"name", "what"}}                         flooding, a time limit, processes that do not end

`clock N` is answered at once with `clock N <mono_ns> <real_ns>`, as the sampler does.

It ends, and with it all that it started, when it is told to, when its stdin closes, at a signal, and when the
controller has said nothing for long or does not listen.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from contextlib import suppress
from typing import Any, Dict, List, NamedTuple, Optional

from driple.agents.daemon.cleanup import Undo
from driple.agents.daemon.event_loop import READ, Loop
from driple.agents.daemon.handlers import Duties
from driple.agents.daemon.journal import Records
from driple.agents.daemon.line_streams import CHUNK, Line, Lines, Outlet
from driple.agents.daemon.processes import PATIENCE_S
from driple.agents.daemon.procfs import descendants, kill, processes
from driple.agents.daemon.reaper import Reaper
from driple.agents.daemon.work_dir import WorkDir
from driple.agents.hostinfo.host_facts import first_facts
from driple.contracts.errors import RunFailed

ENDED, ORPHANED = 0, 3
"""Exit codes."""

REQUEST_LIMIT = 64_000_000
# So much may wait for a controller that does not read; beyond it, it counts as gone.
DEAF_BYTES = 8_000_000
END_GRACE_S = 2.0

_FLUSH_S = 2.0
_LOCK_PAUSE_S = 0.1


class Settings(NamedTuple):
    """What the command line says."""

    work: str
    owner: str
    """Who uses the host, for others who wait for it."""
    wait_s: float = 0.0
    """How long to wait for a host that another uses."""
    orphan_s: float = 30.0
    """So long without a line from the controller, and it counts as gone."""


class Steward:
    """From the lock to the last process."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._exit: Optional[int] = None
        self._grace_s = END_GRACE_S
        self._loop = Loop()
        self._out = Outlet(self._loop, sys.stdout.fileno(), DEAF_BYTES, self._deaf)
        self._in = sys.stdin.fileno()
        self._lines = Lines(REQUEST_LIMIT)
        self._early: List[Line] = []
        self._duties: Optional[Duties] = None
        self._heard_s = 0.0
        self._reaper = Reaper(self._loop)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._signalled)
        self._loop.watch(self._in, READ, self._read)

    def run(self) -> int:
        """Serves; the exit code.

        Raises:
            RunFailed: another has the host, or the folder cannot be used.
        """
        try:
            try:
                self._begin()
            except OSError as error:
                raise self._failed(f"{error.filename or self._settings.work}: {error.strerror}") from None
            if self._duties is not None:
                self._serve(self._duties)
        finally:
            self._end()
        return ENDED if self._exit is None else self._exit

    # ---- from the first line to the last ----

    def _begin(self) -> None:
        """Waits for the host, ends what an earlier steward left on it, and is ready."""
        work = WorkDir(self._settings.work)
        until_s = time.monotonic() + self._settings.wait_s
        told = False
        while not work.take(self._settings.owner):
            holder = work.holder()
            if not told:
                self._say({"busy": holder})
                told = True
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise self._failed(f"host is used by {holder['owner']} (pid {holder['pid']})")
            self._loop.turn(min(left_s, _LOCK_PAUSE_S))
            if self._exit is not None:
                return
        records = Records(work.path)
        left = records.end_left()
        self._undo = Undo(work.path)
        self._take_off()
        self._duties = Duties(self._loop, self._reaper, work, records, self._out, self._quit)
        self._say({"ready": first_facts(work, left)})

    def _serve(self, duties: Duties) -> None:
        self._heard_s = time.monotonic()
        self._watch_controller()
        early, self._early = self._early, []
        for line in early:
            self._obey(duties, line)
        while self._exit is None:
            self._loop.turn()

    def _end(self) -> None:
        """Nothing that was started is left, whatever it was that ended us."""
        self._loop.forget(self._in)
        if self._duties is not None:
            children = self._duties.children
            children.stop(None, self._grace_s, lambda _: None)
            end_s = time.monotonic() + self._grace_s + 2 * PATIENCE_S
            while not children.empty and time.monotonic() < end_s:
                self._loop.turn(1.0)
            self._end_rest()
            self._take_off()
        end_s = time.monotonic() + _FLUSH_S
        while self._out.waiting and time.monotonic() < end_s:
            self._loop.turn(_FLUSH_S)

    def _take_off(self) -> None:
        for name in self._undo.now():
            complain(f"{name}: could not be taken off")

    def _end_rest(self) -> None:
        """Those that work aside, and orphans that had thrown away every sign of where they came from."""
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
        self._say({"failed": why})
        return RunFailed(f"driple-steward: error: {why}")

    def _signalled(self, *_: object) -> None:
        if self._exit is not None:  # told twice: no more grace
            self._grace_s = 0.0
            self._loop.after(0.0, self._hurry)
        self._exit = ENDED if self._exit is None else self._exit

    def _hurry(self) -> None:
        if self._duties is not None:
            self._duties.children.stop(None, 0.0, lambda _: None)

    def _quit(self, grace_s: float) -> None:
        self._grace_s = grace_s
        self._exit = ENDED

    # ---- the controller ----

    def _watch_controller(self) -> None:
        """Looks when its silence could have become too long; else every line would have to move a timer."""
        silent_s = time.monotonic() - self._heard_s
        if silent_s < self._settings.orphan_s:
            self._loop.after(self._settings.orphan_s - silent_s, self._watch_controller)
        elif self._exit is None:
            complain(f"no word from the controller for {silent_s:.0f} s: everything is ended")
            self._exit = ORPHANED

    def _deaf(self, error: Optional[OSError]) -> None:
        if error is None and self._exit is None:
            complain(f"the controller does not read, {DEAF_BYTES} bytes wait for it: everything is ended")
            self._exit = ORPHANED
        self._exit = ENDED if self._exit is None else self._exit

    def _read(self) -> None:
        data = os.read(self._in, CHUNK)
        if not data:
            self._loop.forget(self._in)
            self._exit = ENDED if self._exit is None else self._exit
            return
        for line in self._lines.feed(data):
            self._heard_s = time.monotonic()
            if self._duties is None:
                self._early.append(line)
            else:
                self._obey(self._duties, line)

    def _obey(self, duties: Duties, line: Line) -> None:
        if line.text.startswith(b"clock"):
            # Here, as it brings half the sampler: the first probe takes longer, and the quickest of many counts.
            from driple.agents.sampler.ticker import probe_answer

            self._out.put(probe_answer(line.text.decode("utf-8", "replace")).encode("utf-8") + b"\n")
        elif line.text.strip() and self._exit is None:  # after `quit` nothing new is begun
            duties.do(line)

    def _say(self, value: Dict[str, Any]) -> None:
        self._out.put(json.dumps(value).encode("ascii") + b"\n")


def complain(what: str) -> None:
    """A line on stderr, for trouble that nobody may be there to read of."""
    with suppress(OSError):  # a closed stderr must not keep us from what we are about to do
        print(f"driple-steward: {what}", file=sys.stderr, flush=True)
