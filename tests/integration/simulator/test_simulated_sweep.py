"""Simulated sweeps with real simulator processes: from an experiment to rows."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import driple
from driple.contracts.errors import BadInput
from driple.contracts.manifest import Manifest
from driple.contracts.run_spec import RunSpec
from driple.orchestrator.cli import main
from driple.orchestrator.sweep.run_experiment import plan_sweep
from driple.pipeline.traces.load_run import load_run
from driple.simulator.simulation import simulate_workload

pytestmark = pytest.mark.integration


def experiment(**more: Any) -> dict[str, Any]:
    content = {"name": "sim", "setting": "v100-p1w2-pcie", "hosts": "simulated", "steps": 20, "sampling_hz": 1000}
    return {**content, "workloads": [{"model": ["resnet20", "lenet"], "batch_size": 32}], **more}


def test_a_simulated_sweep_leaves_ordinary_runs_and_rows(tmp_path: Path) -> None:
    result = driple.run(experiment(), output=tmp_path / "traces")
    assert [each.status for each in result.runs] == ["sealed"] * 2
    built = driple.build_dataset(tmp_path / "traces", output=tmp_path / "datasets")
    rows = pq.read_table(tmp_path / "datasets/simulated/v100-p1w2-pcie.parquet").to_pylist()
    assert {row["provenance"] for row in rows} == {"simulated"}
    assert len(rows) == 2 * 3
    assert built is not None
    for each in result.runs:
        manifest = Manifest.read(Path(str(each.directory)) / "run.json")
        assert {host.kind for host in manifest.hosts.values()} == {"simulated"}
        assert {"simulator", "simulator/device v100", "simulator/host gpu-server"} <= set(manifest.versions)
        assert load_run(Path(str(each.directory))).tasks["worker:0"].steps is not None


def test_a_job_of_pytorch_is_simulated_with_its_own_graph(tmp_path: Path) -> None:
    workload = {"model": "lenet", "batch_size": 8, "strategy": "allreduce", "framework": "torch", "topology": "star"}
    (result,) = driple.run(experiment(setting="v100-p0w2-1g", workloads=[workload]), output=tmp_path / "traces").runs
    graph = pq.read_table(Path(str(result.directory)) / "graph/worker.parquet").to_pylist()[0]
    assert graph["framework"] == "torch" and "CollectiveReduceV2" in {node["op"] for node in graph["nodes"]}
    driple.build_dataset(tmp_path / "traces", output=tmp_path / "datasets")
    rows = pq.read_table(tmp_path / "datasets/simulated/v100-p0w2-1g.parquet").to_pylist()
    assert {(row["framework"], row["topology"], row["bytes_sent"]) for row in rows} == {("torch", "star", 8691360.0)}


def test_the_pipeline_finds_the_metrics_that_the_simulator_computes(tmp_path: Path) -> None:
    """Through files or not: the same series, the same rules."""
    (result,) = driple.run(experiment(workloads=[{"model": "resnet50", "batch_size": 32}]), output=tmp_path).runs
    driple.build_dataset(tmp_path, output=tmp_path / "datasets")
    rows = pq.read_table(tmp_path / "datasets/simulated/v100-p1w2-pcie.parquet").to_pylist()
    (row,) = (row for row in rows if row["task"] == "worker:0")
    spec: RunSpec = result.run.spec
    found = simulate_workload(spec.workload, spec.setting, together=spec.together, seed=spec.seed).metrics("worker:0")
    for name in ("step_s", "gpu_burst_s", "gpu_burst_pct", "gpu_mem_burst_pct", "net_tx_burst_s", "net_rx_idle_s"):
        assert row[name] == pytest.approx(found[name], rel=0.03), name


def test_a_calibrated_machine_without_gpus_has_rows_of_cpus(
    tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    value = json.loads((checkout / "simulator/devices/cpu.json").read_text())
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices/x.json").write_text(json.dumps({**value, "name": "x"}))
    monkeypatch.setenv("DRIPLE_DEVICES", str(tmp_path / "devices"))
    small = experiment(setting="x-p1w1-1g", workloads=[{"model": "lenet", "batch_size": 32}])
    (result,) = driple.run(small, output=tmp_path / "traces").runs
    driple.build_dataset(tmp_path / "traces", output=tmp_path / "datasets")
    rows = pq.read_table(tmp_path / "datasets/simulated/x-p1w1-1g.parquet").to_pylist()
    assert {row["device"] for row in rows} == {"cpu"}
    (row,) = (row for row in rows if row["task"] == "worker:0")
    spec: RunSpec = result.run.spec
    found = simulate_workload(spec.workload, spec.setting, together=spec.together, seed=spec.seed).metrics("worker:0")
    for name in ("step_s", "gpu_burst_s", "gpu_burst_pct"):
        assert row[name] == pytest.approx(found[name], rel=0.03), name


def test_a_sweep_is_resumed_and_repeats_itself(tmp_path: Path) -> None:
    small = experiment(workloads=[{"model": "lenet", "batch_size": 32}])
    (first,) = driple.run(small, output=tmp_path / "one").runs
    assert [each.status for each in driple.run(small, output=tmp_path / "one").runs] == ["skipped"]
    (second,) = driple.run(small, output=tmp_path / "two").runs
    for name in ("trace/worker-0.parquet", "steps/worker-1.parquet", "graph/worker.parquet"):
        assert Path(str(first.directory), name).read_bytes() == Path(str(second.directory), name).read_bytes()


def test_real_hosts_can_be_simulated_in_a_folder_of_their_own(tmp_path: Path) -> None:
    lab = experiment(hosts="lab", setting="v100-p2w2-1g")
    with pytest.raises(BadInput, match="the lab has no v100"):
        driple.run(lab, output=tmp_path, simulate=True)
    result = driple.run("v100-p5w5-1g", output=tmp_path, simulate=True, stop=_after_first(tmp_path))
    assert result.experiment == "v100-p5w5-1g-simulated"
    assert result.sealed and not result.failed
    assert not list(tmp_path.glob("*/.*.partial"))


def test_an_experiment_without_hosts_can_be_simulated(tmp_path: Path) -> None:
    content = experiment(workloads=[{"model": "lenet", "batch_size": 32}])
    del content["hosts"]
    with pytest.raises(BadInput, match="the lab has no v100.*--simulate"):
        driple.run(content, output=tmp_path)
    (one,) = driple.run(content, output=tmp_path, simulate=True).runs
    assert one.status == "sealed" and Path(str(one.directory)).parent.name == "sim-simulated"


def test_a_plan_refuses_what_the_simulation_would(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="network: loss: a simulation has no packet loss"):
        plan_sweep(experiment(setting="v100-p1w2-1g", network={"loss": ["0%", "1%"]}), output=tmp_path)


def _after_first(folder: Path) -> Any:
    """An event that is set when the first run is sealed."""

    class Event:
        def is_set(self) -> bool:
            return any(folder.glob("*/*/run.json"))

    return Event()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"setting": "h100-p1w2-pcie"}, "driple-calibrate --name h100"),
        ({"setting": "v100-p1w1-1g", "network": {"loss": "1%"}}, "network: loss: a simulation has no packet loss"),
        ({"setting": "v100-p1w1-1g", "network": {"congestion": "bbr"}}, "network: congestion: a simulation has no"),
        ({"setting": "v100-p100w1000-1g"}, "v100-p100w1000-1g: 100000 pairs of tasks would exchange tensors"),
    ],
)
def test_what_cannot_be_simulated_is_refused_before_anything_is_started(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    said: list[str] = []
    with pytest.raises(BadInput, match=message) as caught:
        driple.run(experiment(**change), output=tmp_path / "traces", progress=said.append)
    assert "\n" not in str(caught.value) and not said and not (tmp_path / "traces").exists()
    with pytest.raises(BadInput, match=message):
        plan_sweep(experiment(**change), output=tmp_path / "traces")


def test_a_killed_controller_leaves_no_process_and_no_half_run(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "driple.orchestrator.cli",
        "v100-p5w10-1g",
        "--simulate",
        "--output",
        str(tmp_path),
    ]
    controller = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _until(lambda: any(tmp_path.glob("*/*/run.json")))
    children = _children(controller.pid)
    assert children
    controller.send_signal(signal.SIGKILL)
    controller.wait()
    _until(lambda: not any(Path("/proc", str(pid)).exists() for pid in children))  # their stdin is closed
    for folder in tmp_path.glob("*/*/run.json"):
        assert json.loads(folder.read_text())["status"] == "sealed"
    stopped = driple.run("v100-p5w10-1g", output=tmp_path, simulate=True, stop=_after_first(tmp_path))
    assert stopped.skipped and not stopped.failed
    assert not list(tmp_path.glob("*/.*.partial"))


SWEEP = [sys.executable, "-m", "driple.orchestrator.cli", "v100-p1w2-pcie", "--simulate"]


def test_plans_and_summaries_say_that_runs_are_simulated(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = "SIMULATED: these runs are simulated, not measured"
    path = tmp_path / "small.yaml"
    path.write_text(
        "setting: v100-p1w2-pcie\nhosts: simulated\nsteps: 20\nworkloads:\n  - {model: lenet, batch_size: 32}\n"
    )
    words = [str(path), "--output", str(tmp_path / "traces")]
    assert main([*words, "--dry-run"]) == 0
    assert capsys.readouterr().out.splitlines()[0] == first
    assert main([*words, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["provenance"] == "simulated"
    assert main(words) == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[0] == first
    assert "started on simulated simulated1" in captured.err and "(1 of 1 done)" in captured.err
    assert main([*words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["provenance"] == "simulated"
    assert main(["v100-p1w2-pcie", "--simulate", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert text.splitlines()[0] == first and "on simulated hosts" in text
    assert main(["v100-p1w2-pcie", "--dry-run"]) == 0
    assert "SIMULATED" not in capsys.readouterr().out


def test_ctrl_c_ends_a_sweep_that_the_same_command_continues(tmp_path: Path) -> None:
    command = [*SWEEP, "--output", str(tmp_path)]
    controller = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _until(lambda: any(tmp_path.glob("*/*/run.json")))
    controller.send_signal(signal.SIGINT)
    out, err = controller.communicate(timeout=60)
    assert controller.returncode == 130, err
    assert "SIGINT: stopping the current runs" in err
    assert out.splitlines()[0] == "SIMULATED: these runs are simulated, not measured" and "not done" in out
    assert not list(tmp_path.glob("*/.*.partial"))
    done = len(list(tmp_path.glob("*/*/run.json")))
    stopped = driple.run("v100-p1w2-pcie", output=tmp_path, simulate=True, stop=_after_first(tmp_path))
    assert len(stopped.skipped) == done and not stopped.failed and stopped.simulated


def test_ctrl_c_ends_a_simulation_that_takes_long(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    path.write_text(
        "setting: v100-p1w500-1g\nhosts: simulated\nsteps: 20\nworkloads:\n  - {model: resnet50, batch_size: 32}\n"
    )
    command = [sys.executable, "-m", "driple.orchestrator.cli", str(path), "--output", str(tmp_path / "traces")]
    controller = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    _until(lambda: list(tmp_path.glob("traces/*/.*.partial/job.json")))
    children = _children(controller.pid)
    controller.send_signal(signal.SIGINT)
    out, err = controller.communicate(timeout=20)  # the simulation alone takes longer
    assert controller.returncode == 130, err
    assert "1 not done" in out and "FAILED" not in err and "Traceback" not in err
    assert children and not any(Path("/proc", str(pid)).exists() for pid in children)
    assert not [path for path in tmp_path.glob("traces/*/*") if path.is_dir()]


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()] or [
        int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _parent(entry) == pid
    ]


def _parent(entry: Path) -> int:
    try:
        return int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, IndexError):
        return -1


def _until(condition: Any) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit and os.getpid()
        time.sleep(0.05)
