"""A run on the lab as it should be: what it leaves, and what it says of itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from lab_rig import CLOCK_OFFSET_S, Rig, half_done, manifest_of

from driple.contracts.fingerprint import MEASURES
from driple.contracts.formats.dataset import FINGERPRINT
from driple.contracts.manifest import SEALED, Manifest
from driple.contracts.run_spec import RunSpec
from driple.pipeline.datasets.build import build_dataset

pytestmark = [pytest.mark.integration, pytest.mark.tf, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def sealed(rig: Rig, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    folder = tmp_path_factory.mktemp("sealed")
    (result,), seen = rig.sweep(folder)
    assert (result.status, result.attempts, seen.failures) == ("sealed", 1, [])
    assert not half_done(folder)
    assert rig.left() == []
    (root,) = (folder / "traces" / "faults").glob("cpu-*")
    return root, manifest_of(folder)


def test_the_manifest_tells_all(sealed: tuple[Path, Manifest]) -> None:
    root, manifest = sealed
    assert manifest.status == SEALED and manifest.run_id == root.name
    assert [(task.task, task.host, task.exit_code) for task in manifest.tasks] == [
        ("ps:0", "lab1", 0),
        ("worker:0", "lab2", 0),
        ("worker:1", "lab3", 0),
    ]
    assert [task.steps for task in manifest.tasks] == [0, 32, 32]
    assert {task.traffic_source for task in manifest.tasks} == {"nic:eth0"}
    assert {host.kind for host in manifest.hosts.values()} == {"lab"}
    assert {"tensorflow", "driple", "python", "agent", "controller/python"} <= manifest.versions.keys()
    assert manifest.network_done_by.get("rate") == "tbf"
    # The probe cannot find more than the link lets through; how much less depends on what else the machine does.
    assert 0 < manifest.measured_network["rate_mbit"] < 1100
    assert manifest.measured_network["loss_pct"] < 1
    for task in manifest.tasks:
        assert task.quality["loop"]["asked_period_ms"] == 20.0


def test_the_machine_has_a_fingerprint_and_the_rows_have_it(sealed: tuple[Path, Manifest], tmp_path: Path) -> None:
    root, manifest = sealed
    fingerprint, *others = [host.fingerprint for host in manifest.hosts.values()]
    assert fingerprint is not None and others == [fingerprint, fingerprint]  # one machine, measured once
    build_dataset([root], output=tmp_path)
    (path,) = tmp_path.glob("*.parquet")
    rows = pq.read_table(path, columns=[column.name for column in FINGERPRINT]).to_pylist()
    assert len(rows) == 3
    for row in rows:
        for name in MEASURES:
            assert row[f"fingerprint_{name}"] == getattr(fingerprint, name) > 0
        assert row["fingerprint_spread_pct"] == fingerprint.compared_spread_pct


def test_every_file_is_there_and_has_its_checksum(sealed: tuple[Path, Manifest]) -> None:
    root, manifest = sealed
    files = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()} - {"run.json"}
    assert files == manifest.checksums.keys()
    for name, checksum in manifest.checksums.items():
        assert hashlib.sha256((root / name).read_bytes()).hexdigest() == checksum
    for task in ("ps-0", "worker-0", "worker-1"):
        assert {f"trace/{task}.parquet", f"trace/{task}.flows.parquet", f"logs/{task}.log"} <= files
    assert {"steps/worker-0.parquet", "steps/worker-1.parquet", "graph/worker.parquet", "job.json"} <= files


def test_the_trace_covers_the_measured_steps(sealed: tuple[Path, Manifest]) -> None:
    root, _ = sealed
    for task in ("worker-0", "worker-1"):
        times = pq.read_table(root / "trace" / f"{task}.parquet")["t_mono_ns"].to_pylist()
        steps = pq.read_table(root / "steps" / f"{task}.parquet").to_pylist()
        assert len(steps) == 32
        assert times[0] <= steps[2]["start_mono_ns"] and steps[-1]["end_mono_ns"] <= times[-1]


def test_traffic_is_that_of_the_task(sealed: tuple[Path, Manifest]) -> None:
    """A worker sends its gradients and receives the weights at every step; the interface saw at least that."""
    root, _ = sealed
    for task in ("worker-0", "worker-1"):
        sent = pq.read_table(root / "trace" / f"{task}.parquet")["nic_tx_bytes"].drop_null().to_pylist()
        assert sent[-1] - sent[0] > 32 * 4 * 1000


def test_clocks_are_aligned_to_less_than_a_millisecond(sealed: tuple[Path, Manifest]) -> None:
    """lab2's monotonic clock is 5 s ahead, the others' is the machine's own: the truth is known."""
    _, manifest = sealed
    for name, fit in manifest.clocks.items():
        truth = CLOCK_OFFSET_S * 1e9 if name == "lab2" else 0
        for probe in (fit.before, fit.after):
            assert abs(probe.offset_ns - truth) <= probe.bound_ns
            assert abs(probe.offset_ns - truth) < 1e6
        moment = fit.before.host_ns + 1_000_000_000
        assert abs(fit.to_controller(moment) - (moment - truth)) < 1e6


def test_the_job_file_is_what_the_tasks_read(sealed: tuple[Path, Manifest]) -> None:
    root, manifest = sealed
    job = json.loads((root / "job.json").read_text())
    assert RunSpec.from_json(job["run"]) == manifest.run
    assert [task["host"] for task in job["tasks"]] == [task.host for task in manifest.tasks]


def test_what_is_sealed_is_not_done_again(rig: Rig, sealed: tuple[Path, Manifest]) -> None:
    root, _ = sealed
    before = (root / "run.json").stat().st_mtime_ns
    results, seen = rig.sweep(root.parent.parent.parent)
    assert results == [] and seen.attempts == []
    assert (root / "run.json").stat().st_mtime_ns == before


def test_tasks_with_a_python_of_their_own(rig: Rig, tmp_path: Path) -> None:
    (result,), _ = rig.sweep(tmp_path, cold=True, length="steps: 30")
    assert result.status == "sealed"
    assert {task.started_by for task in manifest_of(tmp_path).tasks} == {"python"}
    assert rig.left() == []


def test_one_machine_has_its_traffic_from_flows(rig: Rig, tmp_path: Path) -> None:
    (result,), _ = rig.sweep(tmp_path, setting="cpu-p1w2-pcie", length="steps: 20")
    assert result.status == "sealed"
    manifest = manifest_of(tmp_path)
    assert {task.traffic_source for task in manifest.tasks} == {"flows"} and len(manifest.hosts) == 1
    (root,) = (tmp_path / "traces" / "faults").glob("cpu-*")
    rows = pq.read_table(root / "trace" / "worker-0.flows.parquet").to_pylist()
    own = {row["flow"] for row in rows if row["of_task"] == 1}
    sent = sum(max(row["bytes_acked"] or 0 for row in rows if row["flow"] == flow) for flow in own)
    assert sent > 20 * 4 * 1000
    assert rig.left() == []


@pytest.fixture
def other_links(rig: Rig) -> Iterator[Rig]:
    """The hosts of a pool have the links of the setting for which it was made."""
    rig.close()
    yield rig
    rig.close()


def test_a_run_on_links_that_are_not_those_of_the_setting_is_no_data(other_links: Rig, tmp_path: Path) -> None:
    """The lab cannot limit a link to 800 Gbit/s, and does not reach it."""
    (result,), _ = other_links.sweep(tmp_path, setting="cpu-p1w2-800g", length="steps: 10")
    assert result.status == "sealed", result.failure
    manifest = manifest_of(tmp_path)
    assert "instead of 800000" in str(manifest.network_not_as_asked), manifest.measured_network
    assert manifest.measured_network["rtt_ms"] > 0 and manifest.network_done_by["congestion"] == "cubic by route"
    found = build_dataset([tmp_path / "traces"], output=tmp_path / "datasets")
    (left,) = found.set_aside
    assert "instead of 800000" in left.reason
    again, _ = other_links.sweep(tmp_path, setting="cpu-p1w2-800g", length="steps: 10")
    assert len(again) == 1  # it does not count as done
