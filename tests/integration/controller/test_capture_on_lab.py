"""A run with packets: what was captured fits its counters, its steps and the formula of its strategy."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab_rig import CLOCK_OFFSET_S, Rig, half_done

import driple
from driple.pipeline.reports.registry import write_report
from driple.pipeline.traffic.find_jobs import find_jobs
from driple.pipeline.traffic.traffic_job import TrafficJob

pytestmark = [pytest.mark.integration, pytest.mark.tf, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def job(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> TrafficJob:
    folder = tmp_path_factory.mktemp("captured")
    (result,), seen = rig.sweep(folder, more="capture: headers\n", length="steps: 20")
    assert (result.status, seen.failures) == ("sealed", [])
    assert not half_done(folder)
    assert rig.left() == []
    return find_jobs([folder / "traces"]).jobs[0]


def test_every_host_has_its_packets(job: TrafficJob) -> None:
    assert job.source == "packets"
    assert {path.name for path in (job.path / "packets").iterdir()} == {"lab1.parquet", "lab2.parquet", "lab3.parquet"}
    assert job.packets is not None and job.packets.dropped == 0 and job.notes == ()


def test_packets_are_those_of_tasks(job: TrafficJob) -> None:
    matrix = job.events.matrix()
    assert {("ps:0", "worker:0"), ("worker:0", "ps:0"), ("ps:0", "worker:1"), ("worker:1", "ps:0")} <= matrix.keys()
    tasks = sum(count for pair, count in matrix.items() if all(":" in end for end in pair))
    assert tasks / job.events.total > 0.999


def test_bytes_per_step_are_those_of_the_formula(job: TrafficJob) -> None:
    assert set(job.relative_to_formula()) == {"ps:0", "worker:0", "worker:1"}
    for task, ratio in job.relative_to_formula().items():
        assert 0.97 < ratio < 1.05, task


def test_a_prediction_of_the_run_has_its_matrix(job: TrafficJob) -> None:
    """From the graph that the run wrote: who sent how much to whom, and on how many flows."""
    (one,) = driple.predict(graph=job.path / "graph" / "worker.parquet", setting="cpu-p1w2-1g", simulate=True)
    assert one.traffic is not None and job.payload is not None and job.window is not None
    measured = job.payload.between(job.window.start_s, job.window.end_s)
    steps = len(job.steps["worker:0"].step)
    for known in (one.traffic.pairs, one.traffic.simulated):
        found = {pair: count / steps for pair, count in measured.matrix().items() if pair in known}
        assert found == pytest.approx(dict(known), rel=0.05)
    share = measured.total / 100
    assert sum(row.bytes > share for row in measured.flow_facts()) == one.traffic.flows


def test_packets_are_on_the_time_of_the_run(job: TrafficJob) -> None:
    """One host's clock is ahead by seconds: its packets would be far outside the steps."""
    assert job.window is not None and job.window.duration_s < CLOCK_OFFSET_S
    inside = job.payload.between(job.window.start_s, job.window.end_s) if job.payload else None
    assert inside is not None
    for steps in job.steps.values():
        assert len(steps.step) == 20
    counts = inside.sent()
    for task, expected in job.formula().items():
        assert counts[task] > 0.8 * expected.sent * 20, task


def test_the_report_has_traffic_bursts_and_steps_on_one_axis(job: TrafficJob, tmp_path: Path) -> None:
    report = write_report(job.path, output=tmp_path / "x.html")
    page = report.path.read_text()
    assert report.facts["kind"] == "traffic"
    assert page.count("Packets sent: ") >= 3 and 'class="step"' in page
