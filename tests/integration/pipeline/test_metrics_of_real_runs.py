"""Real runs of the lab, as they were sealed: a synchronous worker receives its parameters once a step."""

from __future__ import annotations

from pathlib import Path

import pytest

from driple.pipeline.bursts.task_metrics import task_metrics
from driple.pipeline.traces.load_run import load_run

MODELS = ("resnet20", "nmt_small", "lenet")


@pytest.mark.parametrize("worker", ["worker:0", "worker:1"])
@pytest.mark.parametrize("model", MODELS)
def test_a_synchronous_worker_receives_once_a_step(checkout: Path, model: str, worker: str) -> None:
    run = load_run(next((checkout / "tests/data/runs").glob(f"*-{model}-*-sync-*")))
    found = task_metrics(run, worker)
    received, steps = found.bibs["net_rx"], run.tasks[worker].steps
    assert received is not None and steps is not None and found.step_s is not None
    assert received.pattern == "BIB"
    assert 0.9 <= received.bursts / len(steps.step) <= 1.1
    assert received.burst_s is not None and received.idle_s is not None
    assert received.burst_s + received.idle_s == pytest.approx(found.step_s, rel=0.05)
    assert received.period_s == pytest.approx(found.step_s, rel=0.05)


@pytest.mark.parametrize("model", MODELS)
def test_what_workers_receive_is_what_the_server_sends(checkout: Path, model: str) -> None:
    run = load_run(next((checkout / "tests/data/runs").glob(f"*-{model}-*-sync-*")))

    def carried(task: str, resource: str) -> float:
        bib = task_metrics(run, task).bibs[resource]
        assert bib is not None and bib.burst_s is not None and bib.idle_s is not None and bib.burst_amount is not None
        return bib.burst_s * bib.burst_amount / (bib.burst_s + bib.idle_s)

    received = sum(carried(f"worker:{i}", "net_rx") for i in (0, 1))
    assert received == pytest.approx(carried("ps:0", "net_tx"), rel=0.25)


def test_the_example_runs_are_small(checkout: Path) -> None:
    runs = [path for path in (checkout / "tests/data/runs").iterdir() if path.is_dir()]
    assert len(runs) >= 3
    for run in runs:
        assert sum(path.stat().st_size for path in run.rglob("*") if path.is_file()) < 400_000
