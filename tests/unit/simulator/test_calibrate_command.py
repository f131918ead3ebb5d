"""driple-calibrate without a measurement: kept results, names, files that exist, interrupts."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import pyarrow.parquet as pq
import pytest

from driple.contracts.formats.calibration_result import APPLY, ASYNC_STEP, PULL, PUSH, SYNC_STEP
from driple.contracts.formats.device import read_device
from driple.contracts.setting import Setting
from driple.simulator.cli_calibrate import main
from driple.simulator.fit.fit_rows import replays_of
from driple.simulator.fit.measured_jobs import read_jobs
from driple.simulator.fit.replay import step_times
from driple.simulator.fit.step_source import StepFile
from driple.simulator.host_model import host_model

TIMES = {"wall_s": 0.01, "spread_pct": 1.0, "repeats": 5}


def op(name: str, inputs: list[list[int]], outputs: list[list[int]], size: float, wall_s: float) -> dict[str, object]:
    shapes = {"inputs": inputs, "outputs": outputs, "read_bytes": size, "written_bytes": size}
    return {**TIMES, **shapes, "op": name, "wall_s": wall_s, "processor_s": wall_s}


RESULT = {
    "schema": "calibration",
    "schema_version": 1,
    "device": "cpu",
    "title": "A processor",
    "threads": 1,
    "cores": 2,
    "date": "2026-01-01",
    "framework": "TensorFlow 2",
    "quick": True,
    "seconds": 20.0,
    "ops": [
        op("MatMul", [[512, 512], [512, 512]], [[512, 512]], 2e6, 1e-3),
        op("Relu", [[1000000]], [[1000000]], 4e6, 1e-3),
        op("Relu", [[4]], [[4]], 16, 1e-6),
    ],
    "transfers": [
        {**TIMES, "what": what, "tensors": tensors, "bytes": size, "worker_s": 0.01, "server_s": 0.01}
        for what in (PULL, PUSH, APPLY)
        for tensors, size in ((8, 1e7), (100, 1e5))
    ]
    + [
        {**TIMES, "what": what, "tensors": 1, "bytes": 4.0, "worker_s": 0.01, "server_s": 0.01}
        for what in (ASYNC_STEP, SYNC_STEP)
    ],
}


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "kept.json"
    path.write_text(json.dumps(RESULT))
    return path


def test_a_kept_result_gives_both_files_beside_each_other(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--name", "mine", "--from-results", str(kept), "--keep-results", "again.json"]) == 0
    device, host = read_device(Path("devices/mine.json")), read_device(Path("devices/mine-host.json"))
    assert (device.kind, host.kind, device.title) == ("cpu", "host", "A processor")
    assert json.loads(Path("again.json").read_text()) == {**RESULT, "copies": []}
    printed = capsys.readouterr().out
    assert "matmul" in printed and "written: devices/mine.json, devices/mine-host.json" in printed


def test_json_has_the_files_and_the_errors(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--name", "mine", "--output", "d/mine.json", "--from-results", str(kept), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["device"]["file"]["name"] == "mine" and found["host"]["path"] == "d/mine-host.json"
    assert {row["kind"] for row in found["kinds"]} == {"matmul", "elementwise"}


def test_files_are_replaced_only_with_force(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--name", "mine", "--from-results", str(kept)]
    Path("devices").mkdir()
    Path("devices/mine-host.json").write_text("mine")
    assert main(given) == 2
    assert "devices/mine-host.json exists; --force" in capsys.readouterr().err
    assert not Path("devices/mine.json").exists() and Path("devices/mine-host.json").read_text() == "mine"
    assert main([*given, "--force"]) == 0
    assert read_device(Path("devices/mine-host.json")).kind == "host"


def test_a_result_of_a_disturbed_machine_gives_no_file(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slow = op("Relu", [[4]], [[4]], 16, 30.0)
    ops = RESULT["ops"]
    assert isinstance(ops, list)
    kept.write_text(json.dumps({**RESULT, "ops": [*ops[:2], slow]}))
    assert main(["--name", "mine", "--from-results", str(kept)]) == 2
    told = capsys.readouterr().err
    assert "the fit of mine failed: parameters.launch_s.default.value: expected 0 to 1 s, got 30; " in told
    assert told.count("\n") == 1 and not Path("devices").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--name", "my-machine"], "--name: device 'my-machine': expected letters and digits"),
        (["--name", "mine", "--output", "other.json"], "expected the file name mine.json: a setting finds it by"),
        (["--name", "mine", "--output", "mine.txt"], "expected a file with the suffix .json"),
        (["--name", "mine", "--quick"], "--quick does not go with --from-results"),
        (["--name", "mine", "--threads", "0"], "--threads does not go with --from-results"),
        (["--name", "mine", "--from-results", "none.json"], "none.json: No such file"),
    ],
)
def test_bad_arguments_are_one_line(
    kept: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["--from-results", str(kept), *arguments]) == 2
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1
    assert not Path("devices").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--from-rows", "datasets"], "--from-rows and --setting go together"),
        (["--from-rows", "datasets", "--setting", "cpu-p1w1-1g", "--quick"], "--quick does not go with --from-rows"),
        (["--from-rows", "none", "--setting", "cpu-p1w1-1g"], "none"),
        (["--from-rows", "datasets", "--setting", "v100-p1w2-pcie"], "v100-p1w2-pcie"),
    ],
)
def test_bad_rows_are_one_line(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    words = [str(checkout / word) if word == "datasets" else word for word in arguments]
    assert main(["--name", "mine", "--output", str(tmp_path / "mine.json"), *words]) == 2
    told = capsys.readouterr().err
    assert message in told and told.count("\n") == 1
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.parametrize("models", [("resnet20", "lenet", "mobilenet"), ("lenet",)], ids=["all", "speed"])
def test_rows_of_a_machine_give_files_that_simulate_it(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], models: tuple[str, ...]
) -> None:
    """A few of the rows, for a quick fit; with fewer than twelve workloads only the speed is fitted."""
    datasets, setting = tmp_path / "datasets", Setting.parse("cpu-p1w1-1g")
    (datasets / "steps").mkdir(parents=True)
    shutil.copy(checkout / "datasets" / "steps" / "lab.parquet", datasets / "steps")
    table = pq.read_table(checkout / "datasets" / f"{setting}.parquet")
    kept = [row for row in range(len(table)) if table["model"][row].as_py() in models]
    pq.write_table(table.take(kept), datasets / f"{setting}.parquet")
    output = tmp_path / "devices" / "mine.json"
    rows = ["--from-rows", str(datasets), "--setting", str(setting)]
    assert main(["--name", "mine", "--output", str(output), *rows]) == 0
    told = capsys.readouterr()
    assert "written: " in told.out and ("only the speed" in told.err) == (len(models) == 1)
    host = host_model(read_device(output.with_name("mine-host.json")))
    replays = replays_of(read_jobs(datasets, setting), StepFile(datasets / "steps" / "lab.parquet"))
    ratios = [
        simulated / one.job.targets["step_s"]
        for one, simulated in zip(replays, step_times(replays, read_device(output), host), strict=True)
    ]
    assert median(ratios) == pytest.approx(1.0, abs=0.2)


@pytest.mark.parametrize("device", ["gpu", "gpu:x", "tpu"])
def test_an_unknown_device_is_refused(capsys: pytest.CaptureFixture[str], device: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--name", "mine", "--device", device])
    assert ended.value.code == 2
    assert "expected cpu or gpu:<number>" in capsys.readouterr().err


def test_an_interrupted_measurement_leaves_no_file_and_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "driple.simulator.cli_calibrate", "--name", "mine"]
    scratch = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(command, cwd=tmp_path, env=scratch, stderr=subprocess.DEVNULL)
    limit = time.monotonic() + 60
    while not (children := _children(process.pid)):
        assert time.monotonic() < limit and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=30) == 130
    assert list(tmp_path.iterdir()) == []
    # A child whose start was interrupted is not killed: it ends by itself when its stdin closes, which takes a moment.
    while any(Path(f"/proc/{pid}").exists() for pid in children):
        assert time.monotonic() < limit
        time.sleep(0.05)


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
