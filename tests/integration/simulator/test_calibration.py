"""The real micro-benchmark in its short form, and simulations with the files that it gives."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import driple
from driple.contracts.formats.calibration_result import APPLY, ASYNC_STEP, PULL, PUSH, SYNC_STEP, read_calibration
from driple.contracts.formats.device import read_device
from driple.simulator.op_kinds import DIRECTIONS

pytestmark = [pytest.mark.integration, pytest.mark.tf]


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("calibrated")
    command = [sys.executable, "-m", "driple.simulator.cli_calibrate", "--name", "mine", "--quick"]
    done = subprocess.run(
        [*command, "--keep-results", "kept.json"], cwd=folder, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "written: devices/mine.json" in done.stdout and "ops" in done.stderr
    return folder


def test_every_kind_of_measurement_has_times(calibrated: Path) -> None:
    found = read_calibration(calibrated / "kept.json")
    assert found.quick and found.threads == 1 and found.title
    assert {"Conv2D", *(f"Conv2D{way}" for way in DIRECTIONS), "MatMul", "Relu", "FusedBatchNormV3", "MaxPoolGrad",
            "Mean", "Softmax", "ConcatV2", "GatherV2", "ApplyMomentum"} <= {one.op for one in found.ops}  # fmt: skip
    assert {one.what for one in found.transfers} == {PULL, PUSH, APPLY, ASYNC_STEP, SYNC_STEP}
    # A product of 1024 takes longer than one of 268 megaflops, whatever the machine.
    products = sorted(
        (one for one in found.ops if one.op == "MatMul"), key=lambda one: one.inputs[0][0] * one.inputs[1][1]
    )
    assert products[-1].processor_s > products[0].processor_s


def test_the_files_have_units_and_sources_and_simulate_a_job(
    calibrated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = read_device(calibrated / "devices/mine.json")
    assert device.value("peak_flops_per_s") > 1e8 and device.value("memory_bytes_per_s") > 1e8
    assert all(one.unit and one.source and one.date for one in device.parameters.values())
    monkeypatch.setenv("DRIPLE_DEVICES", str(calibrated / "devices"))
    experiment = {"name": "x", "setting": "mine-p1w2-1g", "hosts": "simulated", "steps": 10,
                  "workloads": [{"model": "resnet20", "batch_size": 32}]}  # fmt: skip
    (run,) = driple.run(experiment, output=tmp_path).runs
    assert run.status == "sealed"


KERNELS = """
import sys
from driple.workloads.frameworks.registry import framework_of
framework = framework_of("tensorflow")
framework.prepare_environment(None)
framework.load()
from driple.workloads.graphs.graph_build import use_tf1
use_tf1()
import tensorflow.compat.v1 as v1
from tensorflow import raw_ops
from driple.workloads.microbench.op_cases import op_cases
from driple.workloads.microbench.op_times import _chain, _variable, session

def kernels(fetched):
    with session(1) as running:
        running.run(v1.global_variables_initializer())
        told = v1.RunMetadata()
        running.run(fetched, options=v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE), run_metadata=told)
        nodes = [node for device in told.step_stats.dev_stats for node in device.node_stats]
        names = {node.timeline_label.split("= ")[-1].split("(")[0] for node in nodes}
        return sorted(name for name in names if "Pool" in name)

case = next(case for case in op_cases(8) if case.prepare is not None)
with v1.Graph().as_default(), v1.device("/device:CPU:0"):
    marker = v1.get_variable("marker", initializer=0.0, use_resource=False)
    ends, _ = _chain(case, [[_variable(shape) for shape in case.inputs]], marker, raw_ops)
    print(kernels(ends[2]()))
with v1.Graph().as_default(), v1.device("/device:CPU:0"):
    image = _variable(case.inputs[0]) * 2.0
    pooled = v1.nn.max_pool2d(image, 2, 2, "SAME")
    print(kernels(v1.group(v1.gradients(v1.reduce_sum(pooled * pooled), image))))
"""


def test_the_gradient_of_a_pooling_is_timed_with_the_kernel_of_training() -> None:
    """TensorFlow chooses oneDNN's for it only beside its forward op, if at all on this processor."""
    done = subprocess.run([sys.executable, "-c", KERNELS], capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stderr
    timed, trained = done.stdout.splitlines()
    assert "MaxPoolGrad" in timed and timed == trained


def test_a_machine_without_the_gpu_is_refused_in_one_line(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "driple.simulator.cli_calibrate", "--name", "mine", "--device", "gpu:63"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("--device gpu:63: TensorFlow finds no such GPU")
    assert list(tmp_path.iterdir()) == []


def test_driple_run_names_file_and_remedy_of_a_bad_device(tmp_path: Path, calibrated: Path) -> None:
    (tmp_path / "devices").mkdir()
    text = (calibrated / "devices/mine.json").read_text().replace('"peak_flops_per_s"', '"peak"')
    (tmp_path / "devices/mine.json").write_text(text)
    (tmp_path / "x.yaml").write_text(
        "name: x\nsetting: mine-p1w1-1g\nhosts: simulated\nsteps: 10\nworkloads: [{model: resnet20, batch_size: 32}]\n"
    )
    command = [sys.executable, "-m", "driple.orchestrator.cli", "x.yaml"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert "devices/mine.json: parameters.peak: unknown; correct it, or run driple-calibrate" in last
    assert not list(tmp_path.glob("traces/*/*/run.json"))
