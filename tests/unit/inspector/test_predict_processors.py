"""What a simulated answer says about the processor that its device file describes."""

from __future__ import annotations

import json
import math
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


@pytest.mark.parametrize("setting", ["cpu-p1w1-1g", OWN])
def test_figures_of_a_cpu_are_those_of_the_machine_of_the_fit(setting: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--setting", setting, "--simulate"]
    text = printed(words, capsys)
    assert "on its machine its fit is off by 7.3 %" in text
    caution = "figures of the machine that this file was fitted to (fit of 116 workloads of cpu-p1w2-1g"
    assert text.count(caution) == text.count("for another one, run driple-calibrate") == 1
    assert printed([*words, "--batch-size", "16", "32"], capsys).count(caution) == 1
    (found,) = json.loads(printed([*words, "--json"], capsys))["predictions"]
    about = found["simulation"]
    assert about["kind"] == "cpu" and about["caution"].startswith(caution)
    assert about["fitted_to"].startswith("fit of 116 workloads of cpu-p1w2-1g")


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
