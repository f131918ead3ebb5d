"""A simulator process: takes requests as JSON lines, and answers them one after the other."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress

from driple.contracts.errors import BadInput, RunFailed
from driple.contracts.protocol.message import Tagged
from driple.contracts.protocol.simulation_messages import Simulating, read_line


class SimulatorProcess:
    """A simulator process. `kill` may be called from another thread while `ask` waits."""

    def __init__(self) -> None:
        self._words = tempfile.TemporaryFile("w+")  # noqa: SIM115 - not a pipe: nobody reads it, and it could fill up
        # Its own session: Ctrl-C in a terminal reaches the controller alone, which then ends it.
        self._process = subprocess.Popen(
            [sys.executable, "-m", "driple.simulator.cli_host"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            text=True,
            start_new_session=True,
        )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, request: Tagged, progress: Callable[[float], None] = lambda share: None) -> Tagged:
        """The answer; `progress` gets the shares that are done before. Raises RunFailed if the process ends first."""
        answer = self._next(request)
        while isinstance(answer, Simulating):
            progress(answer.share)
            answer = self._next(None)
        return answer

    def kill(self) -> None:
        """Ends what it simulates, and the building of a graph, at once."""
        with suppress(ProcessLookupError):
            if self.alive:
                os.killpg(self._process.pid, signal.SIGKILL)

    def _next(self, request: Tagged | None) -> Tagged:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            if request is not None:
                self._process.stdin.write(request.to_line() + "\n")
                self._process.stdin.flush()
            line = self._process.stdout.readline()
        except OSError:
            line = ""
        if not line:
            self.kill()
            self._process.wait()
            self._words.seek(0)
            words = [text for text in self._words.read().splitlines() if text.strip()] or ["no message"]
            raise RunFailed(f"the simulator ended: {words[-1]}")
        try:
            return read_line(line)
        except BadInput as error:
            raise RunFailed(str(error)) from None

    def end(self) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        self._process.stdout.close()
        self._words.close()
