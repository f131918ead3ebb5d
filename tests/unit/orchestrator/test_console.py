from __future__ import annotations

import io

import pytest

from driple.contracts.errors import RunFailed
from driple.contracts.run_spec import Measurement, NetworkCondition, RunSpec, Workload
from driple.contracts.setting import Setting
from driple.orchestrator.attempt.failure import AttemptError, FailureOrigin, exit_text
from driple.orchestrator.planning.plan import PlannedRun
from driple.orchestrator.sweep import console as console_module
from driple.orchestrator.sweep.console import Console, span, summary_json, summary_text
from driple.orchestrator.sweep.scheduler import RunResult


def planned(batch: int = 2) -> PlannedRun:
    spec = RunSpec(
        setting=Setting.parse("cpu-p1w1-1g"),
        workload=Workload("lenet", "imagenet", batch, image_size=32),
        measurement=Measurement(steps=5),
        together=(("ps:0",), ("worker:0",)),
        network=NetworkCondition(loss_pct=1),
        repetition=1,
    )
    return PlannedRun(spec, spec.id, ())


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_lines_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    console = Console(stream)
    console.begin(3, 1)
    console.started(planned(), ["h1", "h2"], 2)
    console.progress(planned(), "step 3/6")
    console.tick()
    console.ended(RunResult(planned(), "sealed", 1, 12.34, 6))
    console.close()
    lines = [line.partition(" ")[2] for line in stream.getvalue().splitlines()]
    assert lines[0] == "1 of 3 runs are done already"
    assert lines[1] == "cpu-p1w1-1g lenet-b2-s32-momentum-sync 1% #1 (attempt 2): started on h1, h2"
    assert lines[2].startswith(
        "cpu-p1w1-1g lenet-b2-s32-momentum-sync 1% #1: sealed after 12.3 s, 6 steps (2 of 3 done, "
    )
    assert "left" in lines[2]


def test_a_long_run_says_now_and_then_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_module, "TELL_S", 0.0)
    stream = io.StringIO()
    console = Console(stream)
    console.started(planned(), ["h1"], 1)
    console.progress(planned(), "40 % simulated")
    console.progress(planned(7), "not one of ours")
    lines = [line.partition(" ")[2] for line in stream.getvalue().splitlines()]
    assert lines[1:] == ["cpu-p1w1-1g lenet-b2-s32-momentum-sync 1% #1: 40 % simulated"]


def test_a_line_that_is_redrawn_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    stream = Terminal()
    console = Console(stream)
    console.begin(4, 1)
    console.started(planned(), ["h1"], 1)
    console.progress(planned(), "step 3/6\x1b[2J")
    console.tick()
    shown = stream.getvalue()
    assert "\r\x1b[K[#####...............] 1 of 4 done" in shown and "step 3/6" in shown
    assert "\x1b[2J" not in shown  # what a model is called must not reach a terminal as a command
    console.close()
    assert stream.getvalue().endswith("\r\x1b[K")


def test_a_failure_shows_host_command_exit_code_and_last_lines() -> None:
    stream = io.StringIO()
    console = Console(stream)
    words = tuple(f"line {i}" for i in range(30))
    error = AttemptError(
        f"worker:0 on h2 {exit_text(1)}: it broke", FailureOrigin("h2", "worker:0", "python3 -m x", 1, words)
    )
    console.attempt_failed(planned(), error, 5.0)
    console.attempt_failed(planned(), RunFailed("no hosts"), None)
    said = stream.getvalue()
    assert "FAILED, again in 5 s: worker:0 on h2 ended with exit code 1: it broke" in said
    assert "command on h2: python3 -m x" in said
    assert said.count("  | line") == 10 and "  | line 29" in said
    assert "FAILED, given up: no hosts" in said


def test_the_summary() -> None:
    results = [
        RunResult(planned(2), "failed", 2, 3.0, 0, RunFailed("why it failed"), ("h1",)),
        RunResult(planned(3), "sealed", 1, 9.0, 6, None, ("h1", "h2")),
        RunResult(planned(4), "not done"),
    ]
    text = summary_text(results)
    assert text.splitlines()[-1] == "1 sealed, 1 not done, 1 failed"
    assert text.splitlines()[3].startswith("failed") and "why it failed" in text
    plain = summary_json("e", "traces", 5, results)
    assert plain["counts"] == {"sealed": 1, "failed": 1, "not done": 1} and plain["done_before"] == 5
    assert plain["runs"][0]["failure"] == "why it failed"


def test_durations_for_people() -> None:
    assert [span(seconds) for seconds in (5, 99, 300, 7200, 100_000)] == ["5 s", "99 s", "5 min", "2.0 h", "27.8 h"]


def test_ways_to_end() -> None:
    assert exit_text(None) == "was not seen to end"
    assert exit_text(3) == "ended with exit code 3"
    assert exit_text(-9) == "was killed by SIGKILL"
    assert exit_text(-99) == "was killed by signal 99"
