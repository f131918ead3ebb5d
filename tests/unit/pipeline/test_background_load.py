"""Work of others on the machine: seen, and not mistaken for the run's own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from driple.contracts.formats.dataset import BACKGROUND_LOAD_FLAG
from driple.pipeline.datasets.run_rows import Request, RunRows, inputs_sha256, work
from driple.pipeline.traces.background_load import LIMIT_PCT, background_cpu_pct
from driple.pipeline.traces.load_run import Readings, Run, load_run


@pytest.fixture(scope="module")
def run(checkout: Path) -> Run:
    (folder,) = (checkout / "tests/data/runs").glob("*-lenet-*")
    return load_run(folder)


def busier(run: Run, share: float) -> Run:
    """The same run on a machine of which something else took a share of a core."""

    def more(readings: Readings) -> Readings:
        return Readings(readings.t_s, readings.value + (share * 1e9 * readings.t_s).astype("int64"))

    tasks = {
        task: replace(trace, readings={**trace.readings, "host_cpu_busy_ns": more(trace.readings["host_cpu_busy_ns"])})
        for task, trace in run.tasks.items()
    }
    return replace(run, tasks=tasks)


def test_a_quiet_machine_has_only_our_own_samplers(run: Run) -> None:
    for task in run.tasks:
        found = background_cpu_pct(run, task)
        assert found is not None
        assert 2 < found < LIMIT_PCT / 2


def test_what_others_take_is_added(run: Run) -> None:
    quiet, busy = (background_cpu_pct(each, "worker:0") for each in (run, busier(run, 0.5)))
    assert quiet is not None
    assert busy == pytest.approx(quiet + 50, abs=0.5)


def test_unknown_where_a_task_has_no_processor_time(run: Run) -> None:
    trace = run.tasks["ps:0"]
    kept = {name: readings for name, readings in trace.readings.items() if name != "task_cpu_ns"}
    without = replace(run, tasks={**run.tasks, "ps:0": replace(trace, readings=kept)})
    assert background_cpu_pct(without, "worker:0") is None


def test_rows_say_it(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Request(str(run.folder), inputs_sha256(run.folder / "run.json"))
    quiet = work(asked)
    assert isinstance(quiet, RunRows)
    assert all(BACKGROUND_LOAD_FLAG not in row["flags"] for row in quiet.rows)
    monkeypatch.setattr("driple.pipeline.traces.load_run.load_run", lambda folder: busier(run, 0.5))
    busy = work(asked)
    assert isinstance(busy, RunRows)
    assert all(BACKGROUND_LOAD_FLAG in row["flags"] and row["foreign_cpu_pct"] > 50 for row in busy.rows)
