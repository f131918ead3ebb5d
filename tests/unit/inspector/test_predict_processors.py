"""What a simulated answer says about the processor that its device file describes."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

import driple
from driple.inspector.cli_predict import main
from driple.inspector.predict import prediction_text

OWN = "x-p1w2-1g"
ONE_CORE = "of CPU utilisation, 100 % is one core"


@pytest.fixture(autouse=True)
def calibrated(tmp_path: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of the user, with CPUs, beside the devices of driple."""
    monkeypatch.chdir(tmp_path)
    value = json.loads((checkout / "simulator/devices/cpu.json").read_text())
    (tmp_path / "devices").mkdir()
    (tmp_path / "devices/x.json").write_text(json.dumps({**value, "name": "x", "title": "Mine"}))


def printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["resnet20", *words]) == 0
    return capsys.readouterr().out


def test_the_kind_of_the_device_file_names_the_processor(capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(["--setting", OWN], capsys)
    assert "CPU utilisation" in text and "GPU utilisation" not in text
    assert "not measured on this device: GPU memory\n" in text
    several = printed(["--setting", OWN, "--batch-size", "16", "32"], capsys)
    assert "CPU burst" in several and "GPU burst" not in several
    assert "CPU/GPU burst" in printed(["--setting", OWN, "v100-p1w2-pcie"], capsys)


def test_more_than_one_core_is_explained() -> None:
    (one,) = driple.predict("resnet20", setting=OWN)
    level = one.columns.index("gpu_burst_pct")
    for value, explained in ((104.0, True), (99.0, False)):
        found = replace(one, values=(*one.values[:level], value, *one.values[level + 1 :]))
        assert (ONE_CORE in prediction_text.one(found)) == explained


@pytest.mark.parametrize(
    ("setting", "file", "rows"),
    [
        ("cpu-p2w2-1g", "the machine that simulator/devices/cpu.json was fitted to", "cpu-p1w2-1g"),
        (OWN, "the machine that devices/x.json was fitted to", "cpu-p1w2-1g"),
        ("cpu-p1w1-1g", "the machine of the setting's measured rows, 2.* times as fast", "cpu-p1w1-1g"),
    ],
)
def test_figures_of_a_cpu_say_of_which_machine_they_are_at_the_top(
    setting: str, file: str, rows: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--setting", setting, "--simulate"]
    text = printed(words, capsys)
    assert "on its machine its fit is off by " in text
    caution = re.compile(
        rf"figures of {file} .*fit of 116 workloads of {rows}.*for another one, .* run driple-calibrate"
    )
    for shown in (text, printed([*words, "--batch-size", "16", "32"], capsys)):
        first, second, *others = shown.splitlines()
        assert first.startswith("SIMULATED: ") and second.startswith("MACHINE: ") and caution.search(second)
        assert not any("driple-calibrate" in line for line in others)
    (found,) = json.loads(printed([*words, "--json"], capsys))["predictions"]
    about = found["simulation"]
    assert about["kind"] == "cpu" and caution.fullmatch(about["caution"])
    assert about["fitted_to"].startswith(f"fit of 116 workloads of {rows}")


def test_the_machine_of_measured_rows_has_its_own_speed(checkout: Path, tmp_path: Path) -> None:
    (measured,) = driple.predict("resnet20", setting="cpu-p1w1-1g", measured=checkout / "datasets")
    (found,) = driple.predict("resnet20", setting="cpu-p1w1-1g", simulate=True)
    assert found.simulation is not None and found.step_time_s is not None
    assert found.simulation.machine == "simulator/machines/cpu-p1w1-1g.json" and found.simulation.speed > 2
    # Without it, the answer was 3.5 times what was measured.
    assert 0.6 < found.step_time_s / measured.measured["step_s"] < 1.6
    (tmp_path / "devices/cpu.json").write_text((checkout / "simulator/devices/cpu.json").read_text())
    (own,) = driple.predict("resnet20", setting="cpu-p1w1-1g", simulate=True)
    assert own.simulation is not None and own.step_time_s is not None
    assert (own.simulation.machine, own.simulation.speed) == (None, 1.0)  # the user's device is the user's machine
    assert own.step_time_s > 2 * found.step_time_s


def test_a_gpu_is_a_product_and_needs_no_caution(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--setting", "v100-p1w2-pcie"]
    assert "driple-calibrate" not in printed(words, capsys)
    (found,) = json.loads(printed([*words, "--json"], capsys))["predictions"]
    assert (found["simulation"]["kind"], found["simulation"]["caution"]) == ("gpu", None)


def test_null_targets_of_a_simulated_gpu_are_of_signals_without_bursts() -> None:
    (one,) = driple.predict("resnet20", setting="v100-p1w2-pcie")
    values = zip(one.columns, one.values, strict=True)
    flat = replace(one, values=tuple(math.nan if name.startswith("gpu") else value for name, value in values))
    assert "no burst: GPU utilisation, GPU memory" in prediction_text.one(flat)
    (server,) = driple.predict("resnet20", setting="v100-p1w2-pcie", role="ps")
    assert "not measured on this device: GPU utilisation, GPU memory" in prediction_text.one(server)
