"""The parameter files that are shipped, and messages about broken ones."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean, median
from typing import Any

import pytest

import driple.simulator
from driple.contracts.errors import BadInput
from driple.contracts.formats.device import GPU, HOST, read_device
from driple.contracts.formats.training_steps import STEPS
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.contracts.zoo import DATASETS, MODELS, ordinary_size
from driple.pipeline.graph.public import stored_step
from driple.simulator.fit.fit_rows import replays_of
from driple.simulator.fit.gpus import GPUS, SLOWER
from driple.simulator.fit.measured_jobs import read_jobs
from driple.simulator.fit.replay import step_times
from driple.simulator.fit.step_source import StepFile
from driple.simulator.host_model import host_model
from driple.simulator.op_costs import op_costs
from driple.simulator.parameter_files import parameters
from driple.simulator.simulation import simulate_workload, usual_backend

ROOT = Path(driple.simulator.__file__).parent
FILES = sorted(ROOT.glob("*s/*.json"))
SETTING = Setting.parse("v100-p1w2-pcie")
RESNET = Workload("resnet50", "imagenet", 32, image_size=224)


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_parameter_says_its_unit_origin_and_date(path: Path) -> None:
    file = read_device(path)
    assert file.name == path.stem
    assert not [note for note in file.notes if "Early" in note]
    for name, one in file.parameters.items():
        assert one.unit and one.source and one.date, name
        assert "prototype" not in one.source, name
        if "fit of" in one.source:
            assert one.points and one.error_pct is not None, name


def test_there_is_a_file_of_every_gpu_of_the_fit() -> None:
    found = {path.stem: read_device(path) for path in ROOT.glob("devices/*.json")}
    assert {name for name, file in found.items() if file.kind == GPU} >= {*GPUS, *SLOWER}


def test_a_faster_gpu_is_faster() -> None:
    step = stored_step(RESNET, SETTING)
    assert step is not None
    times = {
        name: op_costs(step, read_device(ROOT / "devices" / f"{name}.json")).wall_s.sum() for name in (*GPUS, *SLOWER)
    }
    assert times["v100"] < times["titanrtx"] < times["2080ti"] < times["1080ti"] < times["t4"] < times["k80"]


def test_the_host_file_of_gpu_servers_is_complete() -> None:
    file = read_device(ROOT / "hosts" / "gpu-server.json")
    assert file.kind == HOST
    assert host_model(file).collective_s > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"peak_flops_per_s": None}, "parameters.peak_flops_per_s is missing; correct it, or run driple-calibrate"),
        ({"peak_flops_per_s": 15.7}, "parameters.peak_flops_per_s.value: expected 1e+06 to"),
        ({"memory_bytes_per_s": -1.0}, "parameters.memory_bytes_per_s.value: expected 10000 to"),
        ({"dispatch_s": 1e9}, "parameters.dispatch_s.value: expected 0 to 1 s"),
    ],
)
def test_a_broken_device_file_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: dict[str, float | None], message: str
) -> None:
    content = json.loads((ROOT / "devices" / "v100.json").read_text())
    for name, value in change.items():
        if value is None:
            del content["parameters"][name]
        else:
            content["parameters"][name]["value"] = value
    (tmp_path / "v100.json").write_text(json.dumps(content))
    monkeypatch.setenv("DRIPLE_DEVICES", str(tmp_path))
    with pytest.raises(BadInput) as raised:
        simulate_workload(RESNET, SETTING)
    assert message in str(raised.value)
    assert "driple-calibrate" in str(raised.value) and "\n" not in str(raised.value)


def test_an_unknown_device_is_one_line_with_the_known_ones(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DRIPLE_DEVICES", str(tmp_path))
    with pytest.raises(BadInput, match="no device file of h100 .*v100.*driple-calibrate --name h100"):
        parameters(Setting.parse("h100-p1w2-pcie"))


def test_the_shipped_machine_is_that_of_its_rows(checkout: Path) -> None:
    """Fails if `cpu` or `lab-host` was fitted again, and the machine file was not."""
    for path in ROOT.glob("machines/*.json"):
        setting = Setting.parse(path.stem)
        replays = replays_of(read_jobs(checkout / "datasets", setting)[::4], StepFile(checkout / "datasets" / STEPS))
        found = parameters(setting)
        times = step_times(replays, found.device, found.host)
        measured = [one.job.targets["step_s"] for one in replays]
        assert median(a / b for a, b in zip(times, measured, strict=True)) == pytest.approx(1.0, abs=0.1)


def test_all_reduce_over_gpus_of_a_machine_scales_as_measured(checkout: Path) -> None:
    """What a user of `simulate_workload` gets, and not only the fit, against public measurements."""
    table = json.loads((checkout / "benchmarks/data/simulator-gpu.json").read_text())["multi_gpu"]
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]][::8]

    def step_s(row: dict[str, Any], gpus: int) -> float:
        known = MODELS[row["model"]]
        size = ordinary_size(known, DATASETS["imagenet"])
        workload = Workload(row["model"], "imagenet", row["batch_size"], image_size=size, strategy="allreduce")
        setting = Setting.parse(f"{row['gpu']}-p0w{gpus}-pcie")
        backend = usual_backend(setting, workload.topology, workload.framework)
        return simulate_workload(workload, setting, backend=backend).job.step_s

    errors = [abs(step_s(row, row["gpus"]) / step_s(row, 1) * row["alone"] / row["step_s"] - 1) for row in rows]
    assert len(errors) > 12 and mean(errors) < 0.1
