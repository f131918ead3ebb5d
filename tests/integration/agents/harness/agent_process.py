"""Real agents for the tests, and the other end of their pipes."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

COMMAND = (sys.executable, "-m", "driple.agents.cli_daemon")
PATIENCE_S = 60.0

# Deaf to signals, and with a child that has forked twice, made a session of its own and, if told so, thrown away its
# environment. Each writes its number into a file.
DAEMON = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
def note():
    with open(sys.argv[1], "a") as stream:
        stream.write(f"{os.getpid()}\\n")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        note()
        if sys.argv[2:] == ["scrub"]:
            os.execve("/bin/sleep", ["sleep", "600"], {})
        time.sleep(600)
    os._exit(0)
note()
time.sleep(600)
"""


class AgentProcess:
    """A agent process. What it says without being asked is kept until a test asks for it."""

    def __init__(self, command: Sequence[str | Path], reads: bool = True, **options: Any) -> None:
        """`reads` is whether its stdout is read before its end."""
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )
        self.events: list[dict[str, Any]] = []
        self._number = 0
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._stderr = b""
        self._threads = [threading.Thread(target=read, daemon=True) for read in (self._read, self._read_errors)]
        for thread in self._threads[0 if reads else 1 :]:
            thread.start()

    def ready(self) -> dict[str, Any]:
        """Waits until it is."""
        found: dict[str, Any] = self.event("ready")
        return found

    def send(self, do: str, **fields: Any) -> int:
        """Asks and does not wait; the number of the request."""
        self._number += 1
        self.write(json.dumps({"do": do, "id": self._number, **fields}).encode())
        return self._number

    def write(self, line: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")
        self.process.stdin.flush()

    def reply(self, number: int | None) -> dict[str, Any]:
        """The whole answer to a request."""
        return self._wait(lambda value: value.get("id", ...) == number and "id" in value)

    def ask(self, do: str, **fields: Any) -> dict[str, Any]:
        """Asks, waits, and gives what it answered; an error fails the test."""
        answer = self.reply(self.send(do, **fields))
        assert "ok" in answer, answer
        found: dict[str, Any] = answer["ok"]
        return found

    def refused(self, do: str, **fields: Any) -> str:
        """Asks what cannot be, and gives the complaint."""
        answer = self.reply(self.send(do, **fields))
        assert "error" in answer, answer
        return str(answer["error"])

    def event(self, kind: str, such: Callable[[Any], bool] = lambda _: True) -> Any:
        """The first event of that kind that nobody took yet."""
        return self._wait(lambda value: kind in value and such(value[kind]))[kind]

    def line(self) -> str:
        """The next line that is no JSON, as the clock's are."""
        return str(self._wait(lambda value: "plain" in value)["plain"])

    def run(self, name: str, *argv: str | Path, **fields: Any) -> int:
        """Starts a process on it; its number."""
        words = [str(word) for word in argv]
        return int(self.ask("start", name=name, argv=words, **{"stderr": f"{name}.err", **fields})["pid"])

    def hang_up(self) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def end(self) -> tuple[int, str]:
        """Waits for its end: exit code and stderr."""
        code = self.process.wait(PATIENCE_S)
        self._join()
        return code, self._stderr.decode()

    def close(self) -> None:
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self.hang_up()
        self._join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    def _join(self) -> None:
        for thread in self._threads:
            if thread.ident is None:
                thread.start()
            thread.join(PATIENCE_S)

    def _wait(self, such: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        for value in self.events:
            if such(value):
                self.events.remove(value)
                return value
        end = time.monotonic() + PATIENCE_S
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, end - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"it did not come; instead: {self.events[-20:]}") from None
            if not line:
                self._lines.put(b"")
                raise AssertionError(f"it ended before: {self.events[-20:]}, {self._stderr.decode()}")
            value = json.loads(line) if line.startswith(b"{") else {"plain": line.decode().rstrip("\n")}
            if such(value):
                return dict(value)
            self.events.append(value)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)
        self._lines.put(b"")

    def _read_errors(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._stderr += line


class AgentProcesses:
    """Starts agents on one folder, and leaves none of them and none of the noted processes behind."""

    def __init__(self, work: Path) -> None:
        self.work = work
        self.notes = work.with_name("pids")
        self._agents: list[AgentProcess] = []

    def __enter__(self) -> AgentProcesses:
        # Children inherit what is ignored, and under nohup that is SIGHUP.
        self._before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        signal.signal(signal.SIGHUP, self._before)
        for agent in self._agents:
            agent.close()
        for pid in filter(lives, self.noted()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def begin(self, *options: str, command: Sequence[str | Path] = COMMAND, **more: Any) -> AgentProcess:
        """Starts one; it is not waited for."""
        words = [*command, "--work", self.work, "--owner", "a test", *options]
        self._agents.append(AgentProcess(words, **more))
        return self._agents[-1]

    def ready(self, *options: str, **more: Any) -> AgentProcess:
        """Starts one and waits until it is ready."""
        agent = self.begin(*options, **more)
        agent.ready()
        return agent

    def noted(self) -> list[int]:
        """Numbers that processes wrote down."""
        return [int(word) for word in self.notes.read_text().split()] if self.notes.exists() else []


def lives(pid: int) -> bool:
    """Whether it runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False
