"""Runs calls that may take long, or hang in a driver, in forked processes with a time limit."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from typing import Any, Callable, Dict, NamedTuple, NoReturn, Sequence

from driple.agents.daemon.event_loop import READ, Loop
from driple.agents.daemon.line_streams import CHUNK
from driple.agents.daemon.procfs import Family, die_with, kill, process, processes
from driple.contracts.errors import BadInput, DripleError
from driple.contracts.protocol.message import encode

MOST = 32
_MOST_FDS = 4096

Work = Callable[[], Any]  # returns a message, or messages in plain values


class Outcome(NamedTuple):
    """The result of a call as plain JSON, or None and the reason."""

    value: Any
    error: str = ""


class ForkedCalls:
    """Forks for each call. The agent has one thread, so this is safe; a fork costs a millisecond or two."""

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._running = 0

    def run(self, work: Work, limit_s: float, done: Callable[[Outcome], None], keep: Sequence[int] = ()) -> None:
        """Runs `work` in a child with only the descriptors in `keep`. Raises BadInput if too many are running."""
        if self._running >= MOST:
            raise BadInput(f"{MOST} requests are in progress; wait for their answers")
        hear, tell = os.pipe2(os.O_CLOEXEC)
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            _work(work, parent, tell, keep)
        os.close(tell)
        os.set_blocking(hear, False)
        one = process(pid)
        family = Family(pid, one.start if one else 0)
        heard = bytearray()
        self._running += 1

        def finish(outcome: Outcome) -> None:
            self._running -= 1
            limit.cancel()
            self._loop.forget(hear)
            os.close(hear)
            kill(family.members(processes()))
            done(outcome)

        def ready() -> None:
            with suppress(BlockingIOError):
                data = os.read(hear, CHUNK)
                heard.extend(data)
                if not data:
                    finish(_outcome(bytes(heard)))

        limit = self._loop.after(limit_s, lambda: finish(Outcome(None, f"took longer than {limit_s:g} s")))
        self._loop.watch(hear, READ, ready)


def _outcome(heard: bytes) -> Outcome:
    try:
        told = json.loads(heard)
        return Outcome(told.get("ok"), told.get("error", ""))
    except ValueError:
        return Outcome(None, "the process that handled the request ended without an answer")


def _work(work: Work, parent: int, tell: int, keep: Sequence[int]) -> NoReturn:
    """In the child: sends the result and exits."""
    try:
        die_with(parent)
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nothing, fd)
        low = 3
        for fd in sorted({tell, *keep}):  # not the lock, nor any lifeline: those end with the agent
            os.closerange(low, fd)
            low = fd + 1
        os.closerange(low, max(low, _MOST_FDS))
        try:
            answer: Dict[str, Any] = {"ok": work()}
        except DripleError as error:
            answer = {"error": str(error)}
        except OSError as error:
            answer = {"error": f"{error.filename}: {error.strerror}" if error.filename else str(error)}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        rest = memoryview(encode(answer).encode("ascii"))
        while rest:
            rest = rest[os.write(tell, rest) :]
    finally:
        os._exit(0)
