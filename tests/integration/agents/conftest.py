"""Starts real samplers, and ends every process that a test started."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

SAMPLER = [sys.executable, "-m", "driple.agents.cli"]
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a process with pipes; it is killed at the end of the test if it still runs."""
    started: list[subprocess.Popen[str]] = []
    # Children inherit what is ignored, and under nohup that is SIGHUP: tests must not hang on how they were started.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def begin(*command: str | Path, **options: Any) -> subprocess.Popen[str]:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        started.append(subprocess.Popen([str(part) for part in command], text=True, **{**pipes, **options}))
        return started[-1]

    yield begin
    signal.signal(signal.SIGHUP, before)
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()


@pytest.fixture
def sampler(start: Start) -> Start:
    """Starts driple-sample with these arguments."""

    def begin(*arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
        return start(*SAMPLER, *arguments, **options)

    return begin


@pytest.fixture
def own_network() -> list[str]:
    """A command prefix that runs in a network namespace of its own, where nobody else's bytes are counted."""
    user = [] if os.geteuid() == 0 else ["-Ur"]
    prefix = ["unshare", *user, "-n", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        pytest.skip("needs unshare and ip")
    if subprocess.run([*prefix, "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine allows no network namespaces")
    return prefix


def wait_for(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Waits until something is so, and gives it."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.02)
    raise AssertionError(f"not so after {seconds} s")


@pytest.fixture(name="wait_for")
def wait_for_fixture() -> Callable[..., Any]:
    return wait_for
