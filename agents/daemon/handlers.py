"""Handlers: executes the requests of the controller, and sends events.

Modules that only some requests need are imported by these: 32 agents of a lab start on the cores of one machine.
"""

from __future__ import annotations

import json
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Set, Tuple, Type

from driple.agents.daemon.event_loop import Loop
from driple.agents.daemon.forked_call import ForkedCalls, Outcome, Work
from driple.agents.daemon.journal import Journal
from driple.agents.daemon.line_streams import Line, OutputQueue
from driple.agents.daemon.processes import Processes
from driple.agents.daemon.reaper import Reaper
from driple.agents.daemon.task_progress import Follower, Task, alive
from driple.agents.daemon.work_dir import WorkDir, expand_arguments, sums, tail
from driple.contracts.errors import BadInput, DripleError, UnknownName, shown
from driple.contracts.protocol import events, requests
from driple.contracts.protocol.message import Message, Tagged, encode

if TYPE_CHECKING:
    from driple.agents.daemon.probe_listeners import ProbeListeners

# When this much waits for the controller, lines of processes are dropped: they must not fill the queue alone.
CROWDED_BYTES = 1_000_000
# Limit for work on files.
LONG_S = 600.0
GPUS_S = 30.0
# A machine that needs longer has no fingerprint.
FINGERPRINT_S = 15.0


class Handlers:
    """Executes requests. A handler returns the answer, or None if it comes later."""

    def __init__(
        self,
        loop: Loop,
        reaper: Reaper,
        work: WorkDir,
        journal: Journal,
        out: OutputQueue,
        end: Callable[[float], None],
    ) -> None:
        """`end` is called on `quit`, with the time that processes have to end."""
        self.processes = Processes(loop, reaper, journal, self)
        self._work = work
        self._out = out
        self._end = end
        self._calls = ForkedCalls(loop)
        self._probes: Optional[ProbeListeners] = None
        self._follower = Follower(loop, self._send_event)

    def handle(self, line: Line) -> None:
        """Answers a request, now or later. Every request gets an answer, whatever happens."""
        number: Optional[int] = None
        try:
            asked = _parsed(line)
            if type(asked.get("id")) is not int:
                raise BadInput(f'expected an "id", an integer, in {shown(asked)}')
            number = asked.pop("id")
            do = asked.pop("do", None)
            if not isinstance(do, str) or do not in _HANDLERS:
                raise UnknownName("request", do, tuple(_HANDLERS))
            kind, handler = _HANDLERS[do]
            answer = handler(self, number, kind.read(asked, do))
            if answer is not None:
                self._answer(number, answer)
        except DripleError as error:
            self._refuse(number, str(error))
        except OSError as error:
            self._refuse(number, f"{error.filename}: {error.strerror}" if error.filename else str(error))
        except ValueError as error:  # a text that is not a path, or that UTF-8 cannot encode
            self._refuse(number, str(error))
        except Exception as error:  # a bug in one request must not end what runs
            import traceback

            traceback.print_exc()
            self._refuse(number, f"{type(error).__name__}: {error}")

    def said(self, name: str, line: str, cut: bool) -> bool:
        if self._out.waiting > CROWDED_BYTES:
            return False
        event = events.Said(name=name, line=line)
        if cut:
            event.cut = True
        self._send_event(event)
        return True

    def ended(self, name: str, pid: int, exit_code: int) -> None:
        """See Listener. The last progress of the task is reported before its end."""
        mono_ns = time.monotonic_ns()
        self._follower.look(name)
        self._send_event(events.Ended(name=name, pid=pid, exit_code=exit_code, mono_ns=mono_ns))

    def trouble(self, name: str, what: str) -> None:
        self._send_event(events.Trouble(name=name, what=what))

    def _beat(self, _: int, __: requests.Beat) -> requests.BeatAnswer:
        return requests.BeatAnswer(mono_ns=time.monotonic_ns())

    def _ports(self, _: int, asked: requests.Ports) -> requests.PortsAnswer:
        from driple.agents.hostinfo.free_ports import free_ports

        return requests.PortsAnswer(ports=tuple(free_ports(asked.count)))

    def _write(self, _: int, asked: requests.Write) -> requests.Done:
        self._work.write(asked.path, asked.text)
        return requests.Done()

    def _remove(self, _: int, asked: requests.Remove) -> requests.Done:
        self._work.remove(asked.path)
        return requests.Done()

    def _start(self, _: int, asked: requests.Start) -> requests.StartAnswer:
        start_mono_ns = time.monotonic_ns()
        return requests.StartAnswer(pid=self.processes.start(asked, self._work), start_mono_ns=start_mono_ns)

    def _join_groups(self, _: int, asked: requests.JoinGroups) -> requests.Done:
        from driple.agents.daemon.control_groups import join_groups

        join_groups(asked.pid, asked.files)
        return requests.Done()

    def _tell(self, _: int, asked: requests.Tell) -> requests.Done:
        self.processes.tell(asked.name, asked.line)
        return requests.Done()

    def _stop(self, number: int, asked: requests.Stop) -> None:
        self.processes.stop(asked.names, asked.grace_s, partial(self._answer, number))

    def _follow(self, _: int, asked: requests.Follow) -> requests.Done:
        folder = self._work.under(asked.folder)
        if self._work.path in folder.parents:  # before the task does, so that its first marker is seen
            folder.mkdir(parents=True, exist_ok=True)
        lives = (lambda: self.processes.pid(asked.name) is not None) if asked.pid is None else alive(asked.pid)
        self._follower.follow(Task(asked.name, folder, lives))
        return requests.Done()

    def _unfollow(self, _: int, asked: requests.Unfollow) -> requests.Done:
        self._follower.unfollow(asked.name)
        return requests.Done()

    def _tail(self, _: int, asked: requests.Tail) -> requests.TailAnswer:
        return requests.TailAnswer(lines=tuple(tail(self._work.under(asked.path), asked.lines)))

    def _sums(self, number: int, asked: requests.Sums) -> None:
        folder = self._work.under(asked.folder)
        self._fork(number, lambda: requests.SumsAnswer(files=sums(folder)), LONG_S)

    def _steps(self, number: int, asked: requests.Steps) -> None:
        source, target = self._work.under(asked.source), self._work.inside(asked.target)

        def work() -> requests.StepsAnswer:
            from driple.agents.daemon.steps_file import steps_to_parquet

            return steps_to_parquet(source, target, asked.warmup)

        self._fork(number, work, LONG_S)

    def _packets(self, number: int, asked: requests.Packets) -> None:
        source, target = self._work.inside(asked.source), self._work.inside(asked.target)

        def work() -> requests.PacketsAnswer:
            from driple.agents.capture.seal_packets import seal_packets

            return seal_packets(source, target)

        self._fork(number, work, LONG_S)

    def _look(self, number: int, asked: requests.Look) -> Optional[requests.HostInfo]:
        from driple.agents.hostinfo.interfaces import interfaces
        from driple.agents.hostinfo.software import PYTHON_S, python_versions

        found = interfaces()
        answer = requests.HostInfo(
            nics={name: found.get(name) for name in asked.nics or sorted(found)},
            interfaces=tuple(sorted(found)),
            gpus=None,
            python=None,
            disk_free_bytes=self._work.free_bytes,
        )
        waiting: Set[str] = set()

        def ask(key: str, work: Work, limit_s: float) -> None:
            def done(outcome: Outcome) -> None:
                setattr(answer, key, outcome.value)
                if outcome.value is None:
                    setattr(answer, f"{key}_error", outcome.error)
                waiting.discard(key)
                if not waiting:
                    self._answer(number, answer)

            self._calls.run(work, limit_s, done)
            waiting.add(key)

        if asked.gpus:
            ask("gpus", _gpus, GPUS_S)
        if asked.python is not None:
            prefix = expand_arguments(asked.python)
            ask("python", lambda: python_versions(prefix), PYTHON_S)
        return None if waiting else answer

    def _run(self, number: int, asked: requests.Run) -> None:
        from driple.agents.daemon.cleanup import run

        argv = expand_arguments(asked.argv)
        self._fork(number, lambda: run(argv, asked.limit_s), asked.limit_s + 1)

    def _undo_later(self, _: int, asked: requests.UndoLater) -> requests.Done:
        from driple.agents.daemon.cleanup import Cleanup

        Cleanup(self._work.path).later(asked.name, asked.argv)
        return requests.Done()

    def _undo_now(self, number: int, _: requests.UndoNow) -> None:
        from driple.agents.daemon.cleanup import Cleanup

        cleanup = Cleanup(self._work.path)
        self._fork(number, lambda: requests.UndoNowAnswer(failed=tuple(cleanup.now())), LONG_S)

    def _listen(self, _: int, __: requests.Listen) -> requests.ListenAnswer:
        from driple.agents.daemon.probe_listeners import ProbeListeners
        from driple.agents.hostinfo.link_probe import listening_sockets

        self._probes = self._probes or ProbeListeners(self._calls)
        token, port = self._probes.listen(*listening_sockets())
        return requests.ListenAnswer(tcp_port=port, udp_port=port, token=token)

    def _send(self, number: int, asked: requests.Send) -> None:
        from driple.agents.hostinfo.link_probe import SEND_S, send

        work = partial(send, asked.address, asked.port, asked.seconds, asked.packets, asked.payload)
        self._fork(number, work, SEND_S)

    def _heard(self, number: int, asked: requests.Heard) -> None:
        if self._probes is None:
            raise BadInput("no probe is listening")
        self._probes.heard(asked.token, partial(self._settle, number))

    def _take_fingerprint(self, number: int, _: requests.TakeFingerprint) -> None:
        def work() -> requests.TakeFingerprintAnswer:
            from driple.agents.hostinfo.speed_probe import take_fingerprint
            from driple.contracts.json_values import to_plain

            return requests.TakeFingerprintAnswer(fingerprint=to_plain(take_fingerprint()))

        self._fork(number, work, FINGERPRINT_S)

    def _quit(self, _: int, asked: requests.Quit) -> requests.Done:
        self._end(asked.grace_s)
        return requests.Done()

    def _fork(self, number: int, work: Work, limit_s: float) -> None:
        self._calls.run(work, limit_s, partial(self._settle, number))

    def _settle(self, number: int, outcome: Outcome) -> None:
        if outcome.value is None:
            self._refuse(number, outcome.error)
        else:
            self._answer(number, outcome.value)

    def _answer(self, number: int, answer: Any) -> None:
        self._put(encode({"id": number, "ok": answer}))

    def _refuse(self, number: Optional[int], why: str) -> None:
        self._put(encode({"id": number, "error": " ".join(why.split())}))

    def _send_event(self, event: Tagged) -> None:
        self._put(event.to_line())

    def _put(self, line: str) -> None:
        self._out.put(line.encode("ascii") + b"\n")


_Handler = Callable[[Handlers, int, Any], Optional[Message]]
_HANDLERS: Dict[str, Tuple[Type[requests.Request[Any]], _Handler]] = {
    kind.do: (kind, getattr(Handlers, f"_{kind.do}")) for kind in requests.Request.__subclasses__()
}


def _parsed(line: Line) -> Dict[str, Any]:
    try:
        asked = None if line.cut else json.loads(line.text)
    except (ValueError, RecursionError):
        asked = None
    if not isinstance(asked, dict):
        raise BadInput(f"expected one JSON object per line, got {shown(line.text[:80])}")
    return asked


def _gpus() -> List[requests.GpuInfo]:
    from driple.agents.sources.gpu.registry import list_gpus

    return list_gpus()
