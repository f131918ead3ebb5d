"""Running the contestants in turn, and measuring each from outside."""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from sampler_contestants import BUSY, QUIET, Contestant
from sampler_work import Work

STUB = "gpus=1 busy_ms=200 idle_ms=300 sample_us=20000"


def cpu_s(pid: int) -> float:
    """CPU time of a process and of its children that have ended."""
    own = time.clock_gettime_ns((~pid << 3) | 2) / 1e9
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return own + (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")


def stolen_s() -> float:
    """Processor time that a hypervisor has kept from this machine so far."""
    return int(Path("/proc/stat").read_text().split(None, 9)[8]) / os.sysconf("SC_CLK_TCK")


@contextmanager
def connections(count: int) -> Iterator[None]:
    """TCP connections over the loopback, as a task has them: each is two flows to read."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        for _ in range(count):
            stack.enter_context(socket.create_connection(server.getsockname()))
            stack.enter_context(server.accept()[0])
        yield


def peak_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))


@contextmanager
def started(line: list[str], environment: dict[str, str], errors: Path) -> Iterator[subprocess.Popen[str]]:
    with errors.open("w") as stderr:
        pipe = subprocess.PIPE
        process = subprocess.Popen(line, env=environment, stdin=pipe, stdout=pipe, stderr=stderr, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def alone(work: Work, seconds: float) -> float:
    """Steps a second with nothing beside."""
    steps, before = work.steps(), time.monotonic()
    time.sleep(seconds)
    return (work.steps() - steps) / (time.monotonic() - before)


def measure(contestant: Contestant, work: Work, seconds: float, folder: Path) -> dict[str, Any]:
    """One run. Start and end are left out: only a window in the middle counts."""
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder), "NVML_STUB": STUB}
    errors = folder / "errors"
    stolen = stolen_s()
    with started(contestant.line, environment, errors) as process:
        assert process.stdin is not None and process.stdout is not None
        if contestant.speaks:
            while "ready" not in (line := process.stdout.readline()):
                if not line:
                    return {"failed": (errors.read_text().strip().splitlines() or ["it ended at once"])[-1]}
        time.sleep(0.3)
        try:
            cpu, steps, before = cpu_s(process.pid), work.steps(), time.monotonic()
            time.sleep(seconds)
            cpu, steps = cpu_s(process.pid) - cpu, work.steps() - steps
            wall = time.monotonic() - before
            found = {"cpu_pct": 100 * cpu / wall, "memory_mb": peak_mb(process.pid), "steps_per_s": steps / wall}
        except (OSError, StopIteration):
            return {"failed": (errors.read_text().strip().splitlines() or ["it ended at once"])[-1]}
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=60)
    found["stolen_ms"] = 1000 * (stolen_s() - stolen)
    lines = out.strip().splitlines()
    if not contestant.speaks:
        head = 1 if contestant.name.startswith("nvidia") else 3  # lines of the header
        per_read = {"sar": 10}.get(contestant.line[0], 1)
        return {**found, "rate_hz": max(0, len(lines) - head) / per_read / (wall + 0.3)}
    said = json.loads(lines[-1])
    if "loop" in said:
        how = said["loop"]
        said = {
            "rate_hz": how["ticks"] / said["seconds"],
            "missed_pct": how["missed_pct"],
            "late_p50_ms": how["lateness_us"]["median"] / 1000,
            "late_p99_ms": how["lateness_us"]["p99"] / 1000,
            "priority": said["priority"]["policy"],
        }
    return {**found, **said}


def rounds(field_of: list[Contestant], work: Work, folder: Path, options: argparse.Namespace) -> int:
    """Runs everything in turn, as often as fits into the time. Returns how often that was."""
    begun = time.monotonic()
    for number in range(options.rounds):
        round_begun = time.monotonic()
        for condition in (QUIET, BUSY):
            work.run(condition == BUSY)
            time.sleep(0.3)
            # Machines drift within a round, so each run is held against the steps just before and just after it.
            before = alone(work, options.seconds / 3) if condition == BUSY else 0.0
            for contestant in field_of:
                if contestant.lacks:
                    continue
                found = measure(contestant, work, options.seconds, folder)
                if "failed" in found:
                    contestant.lacks = found["failed"]
                    continue
                if condition == BUSY:
                    after = alone(work, options.seconds / 3)
                    found["slowdown_pct"] = 100 * ((before + after) / 2 / max(found["steps_per_s"], 0.01) - 1)
                    before = after
                contestant.runs[condition].append(found)
                if options.verbose:
                    print(condition, contestant.name, contestant.hz, found, file=sys.stderr)
        took = time.monotonic() - round_begun
        if time.monotonic() - begun + took > options.budget:
            return number + 1
    return int(options.rounds)
