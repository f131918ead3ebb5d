"""A sampler ends for every reason it should, with a sealed trace, and is never left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from driple.agents.sampler.samples_file import SamplesFile
from driple.contracts.formats.trace import METADATA_KEY

pq = pytest.importorskip("pyarrow.parquet")
pytestmark = pytest.mark.integration

Start = Callable[..., "subprocess.Popen[str]"]
WaitFor = Callable[..., Any]


def rows_so_far(samples: Path) -> int:
    try:
        return SamplesFile(samples).rows[0]
    except Exception:  # not there yet, or its header not whole
        return 0


def about(trace: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(pq.read_schema(trace).metadata[METADATA_KEY.encode()])
    return value


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_seals_the_trace(number: signal.Signals, tmp_path: Path, sampler: Start, wait_for: WaitFor) -> None:
    out = tmp_path / "x.parquet"
    process = sampler("--hz", "100", "--nic", "lo", "--out", out, "--json")
    wait_for(lambda: rows_so_far(tmp_path / "x.parquet.samples") > 10)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=30)
    assert (process.returncode, stderr) == (0, "")
    assert json.loads(stdout)["stopped_by"] == f"signal {number.name}"
    assert pq.read_metadata(out).num_rows > 10
    assert about(out)["clean_stop"] is True
    assert list(tmp_path.iterdir()) == [out]


def test_it_reacts_at_once_even_between_slow_ticks(tmp_path: Path, sampler: Start, wait_for: WaitFor) -> None:
    process = sampler("--hz", "1", "--nic", "lo", "--out", tmp_path / "x.parquet", "--watch-stdin")
    assert process.stdout is not None
    assert process.stdin is not None
    assert process.stdout.readline() == "ready\n"
    for number in range(20):
        process.stdin.write(f"clock {number}\n")
        process.stdin.flush()
        word, token, mono, real = process.stdout.readline().split()
        assert (word, token) == ("clock", str(number))
        assert abs(int(mono) - time.monotonic_ns()) < 10 * 10**9
        assert abs(int(real) - time.time_ns()) < 10 * 10**9
    process.stdin.write("stop\n")
    process.stdin.flush()
    stdout, _ = process.communicate(timeout=30)
    assert json.loads(stdout)["stopped_by"] == "controller"


def test_the_end_of_its_channel_ends_it_and_what_it_started(tmp_path: Path, sampler: Start, wait_for: WaitFor) -> None:
    out = tmp_path / "x.parquet"
    script = f"echo $$ > {tmp_path}/pid; sleep 300"
    process = sampler("--hz", "50", "--out", out, "--watch-stdin", "--", "sh", "-c", script)
    pid = int(wait_for(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip()))
    stdout, _ = process.communicate(timeout=30)  # closes stdin
    summary = json.loads(stdout.splitlines()[-1])
    assert summary["stopped_by"] == "controller gone"
    assert summary["command_exit"] == process.returncode == 128 + signal.SIGTERM
    wait_for(lambda: not Path(f"/proc/{pid}").exists())
    assert pq.read_metadata(out).num_rows > 0


def test_the_end_of_the_watched_process_ends_it(tmp_path: Path, sampler: Start, start: Start) -> None:
    watched = start("sleep", "1")
    process = sampler("--hz", "100", "--pid", str(watched.pid), "--out", tmp_path / "x.parquet", "--json")
    stdout, _ = process.communicate(timeout=30)
    # Nobody has collected it: a zombie is as gone as one that was.
    assert Path(f"/proc/{watched.pid}").exists()
    assert json.loads(stdout)["stopped_by"] == "watched process ended"


def test_the_hard_limit_ends_it_and_its_command(tmp_path: Path, sampler: Start) -> None:
    process = sampler("--hz", "50", "--limit", "0.5", "--out", tmp_path / "x.parquet", "--json", "--", "sleep", "300")
    stdout, _ = process.communicate(timeout=30)
    assert json.loads(stdout)["stopped_by"] == "hard limit"
    assert process.returncode == 128 + signal.SIGTERM


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)])
def test_the_exit_code_of_a_wrapped_command_is_passed_on(
    script: str, code: int, tmp_path: Path, sampler: Start
) -> None:
    out = tmp_path / "x.parquet"
    process = sampler("--hz", "200", "--out", out, "--", "sh", "-c", f"echo mine; sleep 0.1; {script}")
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == code
    assert stdout == "mine\n"
    assert "stopped by: command ended" in stderr
    assert pq.read_table(out, columns=["task_cpu_ns"])["task_cpu_ns"].null_count == 0


def test_sampling_may_end_before_its_command_which_then_goes_on(tmp_path: Path, sampler: Start) -> None:
    out = tmp_path / "x.parquet"
    process = sampler("--for", "0.2", "--out", out, "--json", "--", "sh", "-c", "sleep 1; exit 5")
    stdout, _ = process.communicate(timeout=30)
    assert process.returncode == 5
    assert json.loads(stdout)["stopped_by"] == "duration"


def test_a_command_runs_without_the_samplers_priority(tmp_path: Path, sampler: Start) -> None:
    show = "import os; print(os.sched_getscheduler(0) & ~os.SCHED_RESET_ON_FORK, os.nice(0))"
    before = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, check=True).stdout
    process = sampler("--out", tmp_path / "x.parquet", "--", sys.executable, "-c", show)
    assert process.communicate(timeout=30)[0] == before


def test_kill_9_loses_at_most_the_last_second(tmp_path: Path, sampler: Start, wait_for: WaitFor) -> None:
    out, samples = tmp_path / "x.parquet", tmp_path / "x.parquet.samples"
    process = sampler("--hz", "200", "--nic", "lo", "--flows", "10", "--out", out)
    wait_for(lambda: rows_so_far(samples) > 100)
    process.kill()
    process.wait(30)
    ended_ns = time.monotonic_ns()
    assert not out.exists()
    again = sampler("--hz", "200", "--nic", "lo", "--out", out)
    _, stderr = again.communicate(timeout=30)
    assert again.returncode == 2
    assert f"--seal {samples}" in stderr
    recovered = sampler("--seal", samples)
    stdout, _ = recovered.communicate(timeout=30)
    assert recovered.returncode == 0
    table = pq.read_table(out)
    assert f"{out}: {table.num_rows} rows\n" in stdout
    times = table["t_mono_ns"].to_pylist()
    assert len(times) > 100
    # Generous: a busy machine may take its time to start, kill and come back here.
    assert ended_ns - times[-1] < 10 * 10**9
    facts = about(out)
    assert facts["clean_stop"] is False
    assert facts["asked"]["hz"] == 200
    assert "policy" in facts["priority"]
    assert not samples.exists()
    assert pq.read_metadata(tmp_path / "x.flows.parquet").num_columns == 10


def test_ticks_that_a_stopped_sampler_slept_through_are_missed_and_counted(
    tmp_path: Path, sampler: Start, wait_for: WaitFor
) -> None:
    out = tmp_path / "x.parquet"
    process = sampler("--hz", "100", "--nic", "lo", "--out", out, "--json")
    wait_for(lambda: rows_so_far(tmp_path / "x.parquet.samples") > 20)
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.6)
    process.send_signal(signal.SIGCONT)
    time.sleep(0.2)
    process.send_signal(signal.SIGTERM)
    stdout, _ = process.communicate(timeout=30)
    summary = json.loads(stdout)
    assert summary["loop"]["missed_ticks"] >= 50
    assert summary["sources"]["nic"]["gaps"] >= 1
    assert summary["sources"]["nic"]["real_period_ms"]["max"] >= 500
    times = pq.read_table(out)["t_mono_ns"].to_pylist()
    assert max(b - a for a, b in zip(times, times[1:], strict=False)) >= 500_000_000


def test_the_clock_alone_is_answered_until_the_channel_ends(sampler: Start) -> None:
    process = sampler("--answer-clock")
    stdout, _ = process.communicate("clock 1\nclock 2\nnonsense\n", timeout=30)
    lines = stdout.splitlines()
    assert lines[0] == "ready"
    assert [line.split()[:2] for line in lines[1:]] == [["clock", "1"], ["clock", "2"]]
    assert process.returncode == 0


def test_a_full_disk_keeps_what_was_sampled(tmp_path: Path, start: Start) -> None:
    """A limit on file size stands for the disk: the samples meet it, and so does the sealed file."""
    from driple.agents.sampler.seal import seal

    out = tmp_path / "x.parquet"
    limited = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))\n"
        "from driple.agents.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    options = ["--hz", "500", "--for", "60", "--nic", "lo", "--pid", str(os.getpid()), "--out", str(out)]
    process = start(sys.executable, "-c", limited, *options)
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    (line,) = stderr.splitlines()
    assert "File too large" in line
    assert "what was sampled until then is" in line
    if out.exists():
        assert pq.read_metadata(out).num_rows > 50
    else:
        samples = tmp_path / "x.parquet.samples"
        assert f"--seal {samples}" in line
        assert seal(samples)[out] > 50


def test_a_full_disk_does_not_end_the_command(tmp_path: Path, start: Start) -> None:
    limited = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (9_000, 9_000))\n"
        "from driple.agents.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    options = ["--hz", "500", "--nic", "lo", "--out", str(tmp_path / "x.parquet")]
    process = start(sys.executable, "-c", limited, *options, "--", "sh", "-c", "sleep 3; echo done")
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (2, "done\n")
    assert "sampling ended, the command goes on" in stderr
    assert "File too large" in stderr.splitlines()[-1]
