"""Progress of a sweep: a status line on a terminal, plain lines elsewhere, and a table at the end."""

from __future__ import annotations

import io
import logging
import shutil
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import IO, Any

from driple.contracts.command import printable
from driple.contracts.errors import RunFailed
from driple.orchestrator.planning.plan import PlannedRun
from driple.orchestrator.planning.plan_text import provenance_name, simulated_lines, table
from driple.orchestrator.sweep.scheduler import RunResult

BAR = 20
REDRAW_S = 0.5
TELL_S = 20.0
"""Without a terminal, from a line of a run to its next."""


class Console:
    """Writes the progress of a sweep to a stream."""

    def __init__(
        self,
        stream: IO[str] | io.TextIOBase | None = None,
        on_failed: Callable[[RunResult], None] = lambda result: None,
    ) -> None:
        """Writes to stderr if there is no stream. `on_failed` is called for each run that fails finally."""
        self._stream: IO[str] | io.TextIOBase | None = stream or sys.stderr
        self._on_failed = on_failed
        self._terminal = self._stream is not None and self._stream.isatty()
        self._lock = threading.RLock()
        self._began = time.monotonic()
        self._total = self._before = self._sealed = self._failed = 0
        self._doing: dict[str, tuple[PlannedRun, str]] = {}
        self._told: dict[str, float] = {}
        self._last_end = self._began
        self._drawn = 0.0
        self._line_there = False

    def begin(self, total: int, done: int) -> None:
        self._total, self._before = total, done
        self._began = self._last_end = time.monotonic()
        if done:
            self.say(f"{done} of {total} runs are done already")

    def started(self, run: PlannedRun, hosts: Sequence[str], attempt: int) -> None:
        with self._lock:
            self._doing[run.id] = (run, "starting")
            self._told[run.id] = time.monotonic()
            again = f" (attempt {attempt})" if attempt > 1 else ""
            if not self._terminal:
                self.say(f"{_name(run)}{again}: started on {', '.join(hosts)}")

    def progress(self, run: PlannedRun, text: str) -> None:
        with self._lock:
            if run.id not in self._doing:
                return
            self._doing[run.id] = (run, text)
            now = time.monotonic()
            if not self._terminal and now - self._told[run.id] >= TELL_S:
                self._told[run.id] = now
                self.say(f"{_name(run)}: {text}")

    def attempt_failed(self, run: PlannedRun, error: RunFailed, again_in_s: float | None) -> None:
        first, *rest = error.lines()
        then = "given up" if again_in_s is None else f"again in {again_in_s:g} s" if again_in_s else "again"
        self.say(f"{_name(run)}: FAILED, {then}: {first}")
        for line in rest:
            self.say(line)

    def ended(self, result: RunResult) -> None:
        with self._lock:
            self._doing.pop(result.run.id, None)
            self._last_end = time.monotonic()
            self._sealed += result.status == "sealed"
            self._failed += result.status == "failed"
            if result.status == "sealed":
                steps = f", {result.steps} steps" if result.steps else ""
                self.say(f"{_name(result.run)}: sealed after {result.seconds:.1f} s{steps} ({self._count()})")
        if result.status == "failed":
            self._on_failed(result)

    def tick(self) -> None:
        now = time.monotonic()
        if self._terminal and now - self._drawn >= REDRAW_S:
            with self._lock:
                self._drawn = now
                width = shutil.get_terminal_size().columns - 1
                self._write("\r\x1b[K" + printable(self._line())[:width])
                self._line_there = True

    def close(self) -> None:
        with self._lock:
            self._wipe()

    def say(self, text: str) -> None:
        with self._lock:
            self._wipe()
            self._write(f"{time.strftime('%H:%M:%S')} {printable(text)}\n")

    def _wipe(self) -> None:
        if self._line_there:
            self._write("\r\x1b[K")
            self._line_there = False

    def _write(self, text: str) -> None:
        """Writes as long as the stream is open. A closed stream must not end the sweep."""
        if self._stream is not None:
            try:
                self._stream.write(text)
                self._stream.flush()
            except (OSError, ValueError):
                self._stream = None

    def _count(self) -> str:
        done = self._before + self._sealed
        failed = f", {self._failed} failed" if self._failed else ""
        return f"{done} of {self._total} done{failed}{self._eta()}"

    def _eta(self) -> str:
        ended = self._sealed + self._failed
        left = self._total - self._before - ended
        if not ended or not left:
            return ""
        seconds = (self._last_end - self._began) / ended
        rest = max(0.0, seconds * left - (time.monotonic() - self._last_end))
        return f", {60 / seconds:.2g} runs/min, about {span(rest)} left"

    def _line(self) -> str:
        ended = self._before + self._sealed + self._failed
        filled = BAR * ended // max(1, self._total)
        doing = "; ".join(f"{text}: {_name(run)}" for run, text in self._doing.values())
        return f"[{'#' * filled}{'.' * (BAR - filled)}] {self._count()} | {doing or 'waiting'}"


class ConsoleHandler(logging.Handler):
    """Writes log records above the status line of a console."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        for line in self.format(record).splitlines():
            self._console.say(line)


def summary_text(results: Sequence[RunResult], simulated: bool = False) -> str:
    """The table at the end, with the failed runs last."""
    order = {"sealed": 0, "not done": 1, "failed": 2}
    rows = [
        (
            result.status,
            _name(result.run),
            result.attempts,
            f"{result.seconds:.1f} s" if result.seconds else "-",
            ", ".join(result.hosts) or "-",
            str(result.failure) if result.failure else "",
        )
        for result in sorted(results, key=lambda result: order[result.status])
    ]
    counts = ", ".join(
        f"{count} {status}"
        for status in order
        if (count := sum(r.status == status for r in results)) or status == "sealed"
    )
    shown = table(("status", "run", "attempts", "took", "hosts", "reason"), rows)
    return "\n".join((*simulated_lines(simulated), shown, "", counts))


def summary_json(
    experiment: str, output: str, before: int, results: Sequence[RunResult], simulated: bool = False
) -> dict[str, Any]:
    """The summary as plain values."""
    return {
        "experiment": experiment,
        "provenance": provenance_name(simulated),
        "output": output,
        "done_before": before,
        "counts": {
            status: sum(result.status == status for result in results) for status in ("sealed", "failed", "not done")
        },
        "runs": [
            {
                "id": result.run.id,
                "status": result.status,
                "attempts": result.attempts,
                "seconds": round(result.seconds, 3),
                "steps": result.steps,
                "hosts": list(result.hosts),
                "failure": str(result.failure) if result.failure else None,
            }
            for result in results
        ],
    }


def span(seconds: float) -> str:
    """A duration as text."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _name(run: PlannedRun) -> str:
    condition = f" {run.spec.network.label}" if run.spec.network.label else ""
    repetition = f" #{run.spec.repetition}" if run.spec.repetition else ""
    return f"{run.spec.setting} {run.spec.workload.label}{condition}{repetition}"
