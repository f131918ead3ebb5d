"""Scaling curves: one job on several numbers of workers, and where adding one stops paying off."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

import driple
from driple.inspector.cli_predict import main
from driple.inspector.predict.prediction import Predictions
from driple.inspector.predict.prediction_plot import draw
from driple.inspector.predict.scaling_curve import LEAST_GAIN, ScalingCurve, lines, scaling_curves
from driple.inspector.time.step_distribution import StepDistribution

SETTING = "v100-p4w2-40g"
ASK = ["resnet20", "--setting", SETTING, "--workers", "1", "2", "4"]


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def found() -> Predictions:
    return driple.predict("resnet20", setting=SETTING, workers=[4, 1, 2])


def with_rates(found: Predictions, *rates: float) -> ScalingCurve:
    """A curve of 1, 2 and 4 workers with these examples/s."""
    answers = [
        dataclasses.replace(one, step=StepDistribution.of(one.query.setting.workers * 32 / rate, ()))
        for one, rate in zip(found, rates, strict=True)
    ]
    (curve,) = scaling_curves(answers)
    return curve


def test_each_setting_is_predicted_with_each_number_of_workers(found: Predictions) -> None:
    assert [one.setting for one in found] == ["v100-p4w1-40g", "v100-p4w2-40g", "v100-p4w4-40g"]
    (curve,) = found.scaling
    assert curve.setting == "v100-p4w*-40g" and [point.workers for point in curve.points] == [1, 2, 4]
    for point, one in zip(curve.points, found, strict=True):
        alone = driple.predict("resnet20", setting=one.setting)[0]
        assert point.step_s == alone.step_time_s and point.rate == alone.examples_per_s
    first, second, third = curve.points
    assert (first.speed_up, first.efficiency, first.gain) == (1, 1, None)
    assert third.speed_up == pytest.approx(third.rate / first.rate)
    assert third.efficiency == pytest.approx(third.speed_up / 4)
    assert third.gain == pytest.approx((third.rate - second.rate) / 2 / first.rate)
    assert driple.predict("resnet20", setting=SETTING).scaling == ()


def test_it_stops_paying_off_before_the_first_small_gain(found: Predictions) -> None:
    assert with_rates(found, 100, 200, 400).pays_off_to == 4
    assert not with_rates(found, 100, 200, 400).ends
    assert with_rates(found, 100, 151, 200).pays_off_to == 2  # gains of 51 % and 24.5 %
    assert with_rates(found, 100, 149, 400).pays_off_to == 1  # what comes later does not count
    assert with_rates(found, 100, 90, 80).pays_off_to == 1
    assert LEAST_GAIN == 0.5


def test_text_and_json_have_the_curve(capsys: pytest.CaptureFixture[str], found: Predictions) -> None:
    plan = ["--epochs", "90", "--examples", "50000", "--price-per-worker-hour", "0.9"]
    assert main([*ASK, *plan]) == 0
    text = capsys.readouterr().out
    table = text.partition("scaling of resnet20 b32 s32 momentum sync on v100-p4w*-40g\n")[2].splitlines()
    head = "workers step time examples/s speed-up efficiency gain epoch time cost of it"
    assert " ".join(table[0].split()) == head
    assert [line.split()[0] for line in table[1:4]] == ["1", "2", "4"]
    assert "pays off   up to " in text
    assert main([*ASK, *plan, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    (curve,) = answer["scaling"]
    assert (curve["setting"], curve["batch_size"], curve["update"]) == ("v100-p4w*-40g", 32, "sync")
    assert curve["pays_off_up_to"] == found.scaling[0].pays_off_to and curve["step_times_from"] == ["simulated"]
    for point, one in zip(curve["points"], answer["predictions"], strict=True):
        assert point["examples_per_s"] == one["examples_per_s"] and point["epoch_s"] == one["job"]["epoch_s"]
        price = 0.9 * point["workers"]
        assert one["job"]["price_per_hour"] == pytest.approx(price)
        assert point["epoch_cost"] == pytest.approx(point["epoch_s"] / 3600 * price)


def test_the_verdict_names_the_rule(found: Predictions) -> None:
    end = lines(with_rates(found, 100, 151, 200), "a job")
    assert (
        end[-1]
        == "pays off   up to 2 workers (<): beyond, an added worker adds less than 50 % of what the first one does"
    )
    assert [line.split()[:2] for line in end if line.startswith("2")] == [["2", "<"]]
    whole = lines(with_rates(found, 100, 200, 400), "a job")
    assert "up to 4 workers, the most that were asked for: each added one adds 50 %" in whole[-1]
    assert not any("<" in line for line in whole[1:-1])


def test_step_times_of_an_inspector_and_of_a_simulation_are_not_compared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Neither are those of two inspectors: one may have learned on another machine."""
    words = ["resnet20", "--setting", "cpu-p1w2-1g", "--workers", "1", "2", "3"]
    told = {"the inspector of cpu-p1w1-1g", "the inspector of cpu-p1w2-1g", "simulated"}
    assert main([*words, "--json"]) == 0
    (curve,) = json.loads(capsys.readouterr().out)["scaling"]
    if curve["step_times_from"] != ["time model"]:
        assert set(curve["step_times_from"]) == told and curve["pays_off_up_to"] is None
    assert main([*words, "--simulate", "--json"]) == 0
    (curve,) = json.loads(capsys.readouterr().out)["scaling"]
    assert len(curve["step_times_from"]) == 1 and curve["pays_off_up_to"] in (1, 2, 3)


def test_sources_that_differ_are_named(found: Predictions) -> None:
    told = dataclasses.replace(found[1], step=StepDistribution.of(0.02, ()))
    (curve,) = scaling_curves([found[0], told, found[2]])
    assert curve.sources == ("simulated", "time model") and curve.pays_off_to is None and not curve.ends
    assert "step times of simulated and time model: not comparable" in lines(curve, "a job")[-1]


def test_a_range_of_workers_and_the_model_after_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--setting", SETTING, "--workers", "1-3", "resnet20", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["scaling"][0]["points"]
    assert [point["workers"] for point in found] == [1, 2, 3]


@pytest.mark.parametrize("words", [["4"], ["0", "1"], ["3-1"], ["1-5000"], ["2", "-4"], ["two", "three"]])
def test_wrong_numbers_of_workers_are_refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["resnet20", "--setting", SETTING, "--workers", *words]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "--workers: " in error


def test_servers_have_no_curve(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ASK, "--role", "ps"]) == 2
    assert "--workers: the cycle of role ps is not a training step" in capsys.readouterr().err


def test_pictures_have_the_curves(empty_folder: Path) -> None:
    pytest.importorskip("matplotlib")
    found = driple.predict("resnet20", setting=SETTING, update=["sync", "async"], workers=[1, 2, 4])
    assert [len(curve.points) for curve in found.scaling] == [3, 3]
    draw(Path("curve.svg"), found)
    text = (empty_folder / "curve.svg").read_text()
    for part in (
        "in proportion to the workers",
        "gain of each added worker",
        "efficiency [%]",
        "<!-- sync",
        "<!-- async",
    ):
        assert part in text, part
    assert "(SIMULATED: v100-p4w*-40g)" in text
