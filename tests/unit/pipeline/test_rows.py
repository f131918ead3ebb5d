"""Rows of one run: where identity and provenance come from, and what a worker says when it cannot."""

from __future__ import annotations

import json
import pickle
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from driple.contracts.manifest import Manifest
from driple.contracts.run_dir import RunPaths
from driple.contracts.run_spec import JobSpec
from driple.contracts.setting import Setting
from driple.pipeline.datasets import run_rows as making
from driple.pipeline.datasets.run_rows import Request, RunRows, SetAside, inputs_sha256, work
from driple.pipeline.traces.load_run import load_run

pq = pytest.importorskip("pyarrow.parquet")


@pytest.fixture(scope="module")
def example(checkout: Path) -> Path:
    runs = [path.parent for path in (checkout / "tests/data/runs").rglob("run.json")]
    return min(runs, key=lambda run: sum(path.stat().st_size for path in run.rglob("*")))


def asked(run: Path) -> Request:
    return Request(str(run), inputs_sha256(run / "run.json"))


def test_an_outcome_goes_through_a_wire_and_is_the_same_twice(example: Path) -> None:
    outcome = work(asked(example))
    assert isinstance(outcome, RunRows)
    again = pickle.loads(pickle.dumps(outcome))
    assert again.rows == outcome.rows
    assert again.graphs.keys() == outcome.graphs.keys() == {row["graph"] for row in outcome.rows}


def test_a_folder_that_a_worker_does_not_see_is_said(example: Path, tmp_path: Path) -> None:
    outcome = work(Request(str(tmp_path / "elsewhere"), "0"))
    assert isinstance(outcome, SetAside)
    assert "need the traces at the same path" in outcome.reason
    outcome = work(Request(str(example), "0" * 64))
    assert outcome == SetAside("run.json changed during the build")


def test_an_error_of_the_disk_is_the_runs(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(folder: Path) -> None:
        raise OSError(5, "Input/output error", str(folder / "trace/ps-0.parquet"))

    monkeypatch.setattr("driple.pipeline.traces.load_run.load_run", fails)
    assert work(asked(example)) == SetAside("trace/ps-0.parquet: Input/output error")


def test_a_missing_library_is_not_the_runs_fault(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(folder: Path) -> None:
        raise ImportError("no such library")

    monkeypatch.setattr("driple.pipeline.traces.load_run.load_run", fails)
    with pytest.raises(ImportError):
        work(asked(example))


def test_device_of_a_gpu_task_is_the_name_of_its_gpu(example: Path) -> None:
    manifest = Manifest.read(example / "run.json")
    job = JobSpec.from_json(json.loads((example / "job.json").read_text()))
    record = manifest.tasks[-1]
    host = replace(manifest.hosts[record.host], gpus=("Tesla V100", "Tesla V100S"))
    setting = Setting.parse(str(manifest.run.setting).replace("cpu", "v100"))
    run = replace(manifest.run, setting=setting)
    manifest = replace(manifest, run=run, run_id=run.id, hosts={**manifest.hosts, record.host: host})
    tasks = tuple(replace(task, gpu=1 if task.task == record.task else None) for task in job.tasks)
    job = replace(job, tasks=tasks)
    assert making._task(manifest, record, job)["device"] == "Tesla V100S"
    assert making._task(manifest, manifest.tasks[0], job)["device"] is None  # a server has none


def test_a_users_own_model_is_a_family_of_its_own(example: Path) -> None:
    manifest = Manifest.read(example / "run.json")
    workload = replace(manifest.run.workload, model="mine.py:build", code_sha256="ab" * 32)
    run = replace(manifest.run, workload=workload)
    row = making._identity(replace(manifest, run=run, run_id=run.id))
    assert (row["family"], row["model"], row["code_sha256"]) == ("mine.py:build", "mine.py:build", "ab" * 32)


def test_simulated_hosts_make_simulated_rows(example: Path) -> None:
    manifest = Manifest.read(example / "run.json")
    assert making._provenance(manifest, "0")["provenance"] == "measured"
    hosts = {name: replace(host, kind="simulated") for name, host in manifest.hosts.items()}
    assert making._provenance(replace(manifest, hosts=hosts), "0")["provenance"] == "simulated"


def test_start_up_is_the_time_before_the_steps_of_a_worker(example: Path, checkout: Path) -> None:
    """From the last comparison of clocks before the first task is started, to the end of the first step less one."""
    for run in (path.parent for path in (checkout / "tests/data/runs").rglob("run.json")):
        manifest = Manifest.read(run / "run.json")
        outcome = work(asked(run))
        assert isinstance(outcome, RunRows)
        rows = {row["task"]: row for row in outcome.rows}
        assert rows["ps:0"].get("start_s") is None and rows["ps:0"].get("started_by") is None
        for task in ("worker:0", "worker:1"):
            steps = pq.read_table(RunPaths(run.parent, "", run.name).steps(task))
            record = next(one for one in manifest.tasks if one.task == task)
            clock = manifest.clocks[record.host]
            end_ns = clock.to_controller(steps["end_mono_ns"][0].as_py())
            launch_ns = max(-one.before.offset_ns + one.before.host_ns for one in manifest.clocks.values())
            expected = (end_ns - launch_ns) / 1e9 - rows[task]["step_s"]
            assert rows[task]["start_s"] == pytest.approx(expected, abs=1e-6) and 0.5 < expected < 10
            assert rows[task]["started_by"] == "warm"


def test_a_simulation_has_no_start_up(example: Path) -> None:
    found = load_run(example)
    hosts = {name: replace(host, kind="simulated") for name, host in found.manifest.hosts.items()}
    simulated = replace(found, manifest=replace(found.manifest, hosts=hosts))
    assert making._start_up(found, "worker:0", 0.1)["start_s"] > 0
    assert making._start_up(simulated, "worker:0", 0.1) == {}
    assert making._start_up(found, "worker:0", 1e6) == {}  # a step is longer than all of that


def test_graphs_are_read_once_and_not_kept_for_ever(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "_GRAPHS", {})
    monkeypatch.setattr(making, "_GRAPHS_KEPT", 2)
    shutil.copytree(example, tmp_path / "run")
    manifest = Manifest.read(example / "run.json")
    paths = RunPaths(tmp_path, "", "run")
    first = making._graph(paths, manifest)
    paths.graph("worker").unlink()
    assert making._graph(paths, manifest) is first
    shutil.copy(example / "graph/worker.parquet", paths.graph("worker"))
    for number in range(5):
        making._graph(paths, replace(manifest, checksums={"graph/worker.parquet": str(number)}))
        assert len(making._GRAPHS) <= 2
