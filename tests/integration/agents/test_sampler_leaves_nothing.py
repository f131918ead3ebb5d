"""A sampler leaves nothing behind and disturbs nothing: commands, half a trace, a controller's channel, other work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

Start = Callable[..., "subprocess.Popen[str]"]
WaitFor = Callable[..., Any]


def session_of(pid: int) -> list[int]:
    """Processes of a session that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        with suppress(OSError, ValueError):
            words = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(words[3]) == pid and words[0] != "Z":
                found.append(int(entry.name))
    return found


def test_a_signal_in_the_first_milliseconds_leaves_nothing(tmp_path: Path, sampler: Start) -> None:
    samples = tmp_path / "x.parquet.samples"
    for delay_s in (0.0, 0.0, 0.0005, 0.001, 0.002, 0.004):
        process = sampler("--host", "--out", tmp_path / "x.parquet", "--", "sleep", "97", start_new_session=True)
        while not samples.exists():
            assert process.poll() is None
        time.sleep(delay_s)
        process.terminate()
        process.wait(30)
        left = session_of(process.pid)
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        assert not left
        assert not samples.exists()


@pytest.mark.parametrize("told", ["--limit", "SIGTERM", "SIGINT"])
def test_what_the_command_started_goes_with_it(told: str, tmp_path: Path, sampler: Start, wait_for: WaitFor) -> None:
    limit = ["--limit", "1"] if told == "--limit" else []
    script = f"sleep 33 & echo $! > {tmp_path}/pid; wait; true"
    process = sampler("--out", tmp_path / "x.parquet", *limit, "--", "sh", "-c", script, start_new_session=True)
    wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    if not limit:
        time.sleep(0.3)
        process.send_signal(getattr(signal, told))
    process.wait(30)
    left = session_of(process.pid)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def test_the_file_of_a_live_sampler_is_not_sealed(tmp_path: Path, sampler: Start, wait_for: WaitFor) -> None:
    out, samples = tmp_path / "x.parquet", tmp_path / "x.parquet.samples"
    process = sampler("--host", "--out", out, "--json")
    wait_for(lambda: samples.exists() and samples.stat().st_size > 1000)
    for arguments, said in ((("--seal", samples), "still writing"), (("--host", "--out", out), "another sampler")):
        other = sampler(*arguments)
        _, stderr = other.communicate(timeout=30)
        assert other.returncode == 2
        (line,) = stderr.splitlines()
        assert said in line
    process.terminate()
    stdout, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert json.loads(stdout)["stopped_by"] == "signal SIGTERM"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["x.parquet"]


@pytest.mark.parametrize("told", ["SIGTERM", "--limit"])
def test_a_controller_that_does_not_read_cannot_hold_it(told: str, tmp_path: Path, sampler: Start) -> None:
    limit = "2" if told == "--limit" else "60"
    process = sampler("--host", "--out", tmp_path / "x.parquet", "--watch-stdin", "--limit", limit)
    assert process.stdin is not None and process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.set_blocking(process.stdin.fileno(), False)
    end = time.monotonic() + 1.0
    while time.monotonic() < end:
        with suppress(BlockingIOError):
            os.write(process.stdin.fileno(), b"clock 1\n" * 500)
        time.sleep(0.005)
    if told == "SIGTERM":
        process.terminate()
    process.wait(20)
    assert process.returncode == 0
    assert (tmp_path / "x.parquet").exists()


def test_what_a_command_says_is_no_answer_to_the_controller(tmp_path: Path, sampler: Start) -> None:
    options = ["--out", tmp_path / "x.parquet", "--watch-stdin", "--", "sh", "-c", "echo clock 1 0 0; sleep 0.3"]
    process = sampler(*options)
    assert process.stdout is not None and process.stderr is not None
    ready, summary = process.stdout.read().splitlines()
    assert ready == "ready"
    assert json.loads(summary)["stopped_by"] == "command ended"
    assert process.stderr.read() == "clock 1 0 0\n"


def test_sealing_is_ordinary_work_without_an_alarm(tmp_path: Path, start: Start) -> None:
    script = (
        "import os, signal, sys\n"
        "from driple.agents.sampler import session\n"
        "from driple.agents.cli import main\n"
        "real = session.seal\n"
        "def seal(*arguments):\n"
        "    policy = os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK\n"
        "    print('sealing', policy, os.nice(0), signal.getitimer(signal.ITIMER_REAL)[0])\n"
        "    return real(*arguments)\n"
        "session.seal = seal\n"
        "print('before 0', os.nice(0))\n"
        "sys.exit(main(sys.argv[1:]))"
    )
    process = start(sys.executable, "-c", script, "--host", "--for", "0.2", "--out", str(tmp_path / "x.parquet"))
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stderr) == (0, "")
    before, sealing = stdout.splitlines()[:2]
    assert sealing == before.replace("before", "sealing") + " 0.0"


def test_a_slow_rate_ends_in_time_and_reads_at_the_stop(tmp_path: Path, sampler: Start) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    process = sampler("--host", "--hz", "1", "--for", "1.4", "--out", tmp_path / "x.parquet", "--json")
    stdout, _ = process.communicate(timeout=30)
    times = pq.read_table(tmp_path / "x.parquet")["t_mono_ns"].to_pylist()
    assert 1.39 <= (times[-1] - times[0]) / 1e9 < 1.9
    assert json.loads(stdout)["loop"]["ticks"] == len(times) == 3
