"""Duties: what a steward does for each request, and what it says without being asked.

What only some requests need is imported by them: 32 hosts of a lab start on the cores of one machine.
"""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, Optional, Set, Tuple, Type

from driple.agents.daemon import requests
from driple.agents.daemon.event_loop import Loop
from driple.agents.daemon.forked_call import Aside, Outcome, Work
from driple.agents.daemon.journal import Records
from driple.agents.daemon.line_streams import Line, Outlet
from driple.agents.daemon.processes import Children, Order, Stopped
from driple.agents.daemon.reaper import Reaper
from driple.agents.daemon.task_progress import Following, Task, alive
from driple.agents.daemon.work_dir import WorkDir, expanded, sums, tail
from driple.contracts.errors import BadInput, DripleError, UnknownName, shown

if TYPE_CHECKING:
    from driple.agents.daemon.probe_listeners import Probes

# When so much waits for the controller, lines of processes are dropped, which must not be what drowns it.
CROWDED_BYTES = 1_000_000
# For work on files.
LONG_S = 600.0

Answer = Optional[Dict[str, Any]]
"""None: it comes later."""


class Duties:
    """Does what is asked."""

    def __init__(
        self,
        loop: Loop,
        reaper: Reaper,
        work: WorkDir,
        records: Records,
        out: Outlet,
        end: Callable[[float], None],
    ) -> None:
        """`end` is called with the grace that is left to all processes."""
        self.children = Children(loop, reaper, records, self)
        self._work = work
        self._out = out
        self._end = end
        self._aside = Aside(loop)
        self._probes: Optional[Probes] = None
        self._following = Following(loop, lambda progress: self._say({"progress": progress}))

    def do(self, line: Line) -> None:
        """Answers a request, now or later. Whatever it is, it ends in an answer."""
        number: Optional[int] = None
        try:
            asked = _parsed(line)
            if type(asked.get("id")) is not int:
                raise BadInput(f'expected an "id", an integer, in {shown(asked)}')
            number = asked.pop("id")
            do = asked.pop("do", None)
            if not isinstance(do, str) or do not in _DUTIES:
                raise UnknownName("request", do, tuple(_DUTIES))
            kind, duty = _DUTIES[do]
            answer = duty(self, number, kind(asked, do))
            if answer is not None:
                self._answer(number, answer)
        except DripleError as error:
            self._refuse(number, str(error))
        except OSError as error:
            self._refuse(number, f"{error.filename}: {error.strerror}" if error.filename else str(error))
        except ValueError as error:  # a text that is no path, or that UTF-8 cannot say
            self._refuse(number, str(error))
        except Exception as error:  # a bug in one request must not end what runs
            import traceback

            traceback.print_exc()
            self._refuse(number, f"{type(error).__name__}: {error}")

    # ---- what is said without being asked ----

    def said(self, name: str, line: str, cut: bool) -> bool:
        """See Listener."""
        if self._out.waiting > CROWDED_BYTES:
            return False
        self._say({"said": {"name": name, "line": line, **({"cut": True} if cut else {})}})
        return True

    def ended(self, name: str, pid: int, exit_code: int) -> None:
        """See Listener. What the task left is told first, so that who hears of its end knows all."""
        mono_ns = time.monotonic_ns()
        self._following.look(name)
        self._say({"ended": {"name": name, "pid": pid, "exit_code": exit_code, "mono_ns": mono_ns}})

    def trouble(self, name: str, what: str) -> None:
        """See Listener."""
        self._say({"trouble": {"name": name, "what": what}})

    # ---- duties ----

    def _beat(self, _: int, __: requests.Beat) -> Answer:
        return {"mono_ns": time.monotonic_ns()}

    def _ports(self, _: int, asked: requests.Ports) -> Answer:
        from driple.agents.hostinfo.free_ports import free_ports

        return {"ports": free_ports(asked.count)}

    def _write(self, _: int, asked: requests.Write) -> Answer:
        self._work.write(asked.path, asked.text)
        return {}

    def _remove(self, _: int, asked: requests.Remove) -> Answer:
        self._work.remove(asked.path)
        return {}

    def _start(self, _: int, asked: requests.Start) -> Answer:
        order = Order(
            name=asked.name,
            argv=[_home(word) for word in asked.argv],
            env=asked.env or {},
            cwd=self._work.under(asked.cwd),
            stdout=None if asked.stdout is None else self._work.inside(asked.stdout),
            stderr=self._work.inside(asked.stderr),
            talk=asked.talk,
            lifeline=asked.lifeline,
            limit_s=asked.limit_s,
        )
        start_mono_ns = time.monotonic_ns()
        return {"pid": self.children.start(order), "start_mono_ns": start_mono_ns}

    def _tell(self, _: int, asked: requests.Tell) -> Answer:
        self.children.tell(asked.name, asked.line)
        return {}

    def _stop(self, number: int, asked: requests.Stop) -> Answer:
        def done(stopped: Stopped) -> None:
            answer: Dict[str, Any] = {"ended": stopped.ended, "killed": stopped.killed}
            self._answer(number, {**answer, **({"left": stopped.left} if stopped.left else {})})

        self.children.stop(asked.names, asked.grace_s, done)
        return None

    def _follow(self, _: int, asked: requests.Follow) -> Answer:
        folder = self._work.under(asked.folder)
        if self._work.path in folder.parents:  # there before the task makes it, so that its first marker is seen
            folder.mkdir(parents=True, exist_ok=True)
        lives = (lambda: self.children.pid(asked.name) is not None) if asked.pid is None else alive(asked.pid)
        self._following.follow(Task(asked.name, folder, lives))
        return {}

    def _unfollow(self, _: int, asked: requests.Unfollow) -> Answer:
        self._following.unfollow(asked.name)
        return {}

    def _tail(self, _: int, asked: requests.Tail) -> Answer:
        return {"lines": tail(self._work.under(asked.path), asked.lines)}

    def _sums(self, number: int, asked: requests.Sums) -> Answer:
        folder = self._work.under(asked.folder)
        return self._do_aside(number, lambda: {"files": sums(folder)}, LONG_S)

    def _steps(self, number: int, asked: requests.Steps) -> Answer:
        source, target = self._work.under(asked.source), self._work.inside(asked.target)

        def work() -> Dict[str, Any]:
            from driple.agents.daemon.steps_file import steps_to_parquet

            return steps_to_parquet(source, target, asked.warmup)

        return self._do_aside(number, work, LONG_S)

    def _look(self, number: int, asked: requests.Look) -> Answer:
        from driple.agents.hostinfo.interfaces import interfaces
        from driple.agents.hostinfo.software import GPUS_S, PYTHON_S, gpus, python_versions

        found = interfaces()
        answer: Dict[str, Any] = {
            "nics": {name: found[name].plain() if name in found else None for name in asked.nics or sorted(found)},
            "interfaces": sorted(found),
            "gpus": None,
            "python": None,
            "disk_free_bytes": self._work.free_bytes,
        }
        waiting: Set[str] = set()

        def ask(key: str, work: Work, limit_s: float) -> None:
            def done(outcome: Outcome) -> None:
                answer[key] = None if outcome.value is None else outcome.value[key]
                if outcome.value is None:
                    answer[f"{key}_error"] = outcome.error
                waiting.discard(key)
                if not waiting:
                    self._answer(number, answer)

            self._aside.run(work, limit_s, done)
            waiting.add(key)

        if asked.gpus:
            ask("gpus", gpus, GPUS_S)
        if asked.python is not None:
            prefix = [_home(word) for word in asked.python]
            ask("python", lambda: {"python": python_versions(prefix)}, PYTHON_S)
        return None if waiting else answer

    def _run(self, number: int, asked: requests.Run) -> Answer:
        from driple.agents.daemon.cleanup import run

        argv = [_home(word) for word in asked.argv]
        return self._do_aside(number, lambda: run(argv, asked.limit_s), asked.limit_s + 1)

    def _undo_later(self, _: int, asked: requests.UndoLater) -> Answer:
        from driple.agents.daemon.cleanup import Undo

        Undo(self._work.path).later(asked.name, asked.argv)
        return {}

    def _undo_now(self, number: int, _: requests.UndoNow) -> Answer:
        from driple.agents.daemon.cleanup import Undo

        undo = Undo(self._work.path)
        return self._do_aside(number, lambda: {"failed": undo.now()}, LONG_S)

    def _listen(self, _: int, __: requests.Listen) -> Answer:
        from driple.agents.daemon.probe_listeners import Probes
        from driple.agents.hostinfo.link_probe import ears

        self._probes = self._probes or Probes(self._aside)
        token, port = self._probes.listen(*ears())
        return {"tcp_port": port, "udp_port": port, "token": token}

    def _send(self, number: int, asked: requests.Send) -> Answer:
        from driple.agents.hostinfo.link_probe import SEND_S, send

        work = partial(send, asked.address, asked.port, asked.seconds, asked.packets, asked.payload)
        return self._do_aside(number, work, SEND_S)

    def _heard(self, number: int, asked: requests.Heard) -> Answer:
        if self._probes is None:
            raise BadInput("nothing was listened to")
        self._probes.heard(asked.token, partial(self._settle, number))
        return None

    def _quit(self, number: int, asked: requests.Quit) -> Answer:
        self._end(asked.grace_s)
        return {}

    # ---- within ----

    def _do_aside(self, number: int, work: Work, limit_s: float) -> Answer:
        self._aside.run(work, limit_s, partial(self._settle, number))
        return None

    def _settle(self, number: int, outcome: Outcome) -> None:
        if outcome.value is None:
            self._refuse(number, outcome.error)
        else:
            self._answer(number, outcome.value)

    def _answer(self, number: int, answer: Dict[str, Any]) -> None:
        self._say({"id": number, "ok": answer})

    def _refuse(self, number: Optional[int], why: str) -> None:
        self._say({"id": number, "error": " ".join(why.split())})

    def _say(self, value: Dict[str, Any]) -> None:
        self._out.put(json.dumps(value).encode("ascii") + b"\n")


_DUTIES: Dict[str, Tuple[Type[requests.Request], Callable[[Duties, int, Any], Answer]]] = {
    "beat": (requests.Beat, Duties._beat),
    "ports": (requests.Ports, Duties._ports),
    "write": (requests.Write, Duties._write),
    "start": (requests.Start, Duties._start),
    "tell": (requests.Tell, Duties._tell),
    "stop": (requests.Stop, Duties._stop),
    "follow": (requests.Follow, Duties._follow),
    "unfollow": (requests.Unfollow, Duties._unfollow),
    "tail": (requests.Tail, Duties._tail),
    "steps": (requests.Steps, Duties._steps),
    "sums": (requests.Sums, Duties._sums),
    "remove": (requests.Remove, Duties._remove),
    "look": (requests.Look, Duties._look),
    "run": (requests.Run, Duties._run),
    "undo_later": (requests.UndoLater, Duties._undo_later),
    "undo_now": (requests.UndoNow, Duties._undo_now),
    "listen": (requests.Listen, Duties._listen),
    "send": (requests.Send, Duties._send),
    "heard": (requests.Heard, Duties._heard),
    "quit": (requests.Quit, Duties._quit),
}


def _parsed(line: Line) -> Dict[str, Any]:
    try:
        asked = None if line.cut else json.loads(line.text)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        raise BadInput(f"expected one JSON object a line, got {shown(line.text[:80])}")
    return asked


def _home(word: str) -> str:
    """`~/x` as a shell would have it, since none is in between."""
    return str(expanded(word)) if word.startswith("~/") else word
