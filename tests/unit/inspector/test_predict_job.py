"""The training job of predictions: times, cost, ranking by deadline and budget; real predictions throughout."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

import driple
from driple.contracts.errors import BadInput
from driple.inspector.cli_predict import main
from driple.inspector.predict.job_answer import with_jobs
from driple.inspector.predict.prediction import Prediction, Predictions
from driple.inspector.predict.prediction_plot import draw
from driple.inspector.time.step_distribution import StepDistribution
from driple.inspector.time.training_plan import Prices, TrainingPlan

SETTINGS = ("v100-p1w2-pcie", "v100-p2w2-40g")
PLAN = ("--epochs", "90", "--examples", "50000")
ERRORS = tuple(number / 1000 for number in range(-200, 201, 10))
"""Of steps whose time is a target of its own: about 20 % to both sides."""


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Without datasets."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def simulated() -> Predictions:
    return driple.predict("resnet20", setting=SETTINGS)


def planned(answers: Predictions, **plan: Any) -> Predictions:
    """As with a time predictor."""
    told = [dataclasses.replace(one, step=StepDistribution.of(one.step_time_s or 0.0, ERRORS)) for one in answers]
    made = TrainingPlan(**{"epochs": 90.0, "examples": 50_000, "start_up_s": 30.0, **plan})
    return Predictions(tuple(with_jobs(told, made, Path("datasets"))))


def without_model(answers: Predictions, **plan: Any) -> Predictions:
    """As without a time predictor."""
    made = TrainingPlan(**{"epochs": 90.0, "examples": 50_000, **plan})
    return Predictions(tuple(with_jobs([dataclasses.replace(one, step=None) for one in answers], made, Path("none"))))


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def job_of(one: Prediction) -> Any:
    assert one.job is not None
    return one.job


def test_an_inspector_gives_times_and_cost_without_probabilities() -> None:
    answers = driple.predict("resnet20", setting=["cpu-p1w2-1g", "cpu-p2w2-1g"])
    prices = Prices(by_setting={"cpu-p1w2-1g": 0.9, "cpu-p2w2-1g": 1.8})
    found = without_model(answers, start_up_s=30.0, prices=prices).to_json()
    for one, price in zip(found["predictions"], (0.9, 1.8), strict=True):
        job = one["job"]
        assert one["step_time_from"] == "net_rx" and one["step_interval_s"] is None
        assert job["steps_per_epoch"] == 782 and job["steps"] == 90 * 782  # 50000 / (2 * 32) = 781.25
        assert job["step_s"] == one["step_time_s"] and job["examples_per_s"] == one["examples_per_s"]
        assert job["epoch_s"] == pytest.approx(782 * one["step_time_s"])
        assert job["total_s"] == pytest.approx(30 + 90 * job["epoch_s"])
        assert job["cost"] == pytest.approx(job["total_s"] / 3600 * price)
        assert (job["start_up_s"], job["start_up_from"]) == (30, "as told")
        assert (job["interval"], job["meets"], job["probability"]) == (None, None, None)
    assert "ranking" not in found and "scaling" not in found
    text = str(without_model(answers))
    assert "job: 90 epochs of 50000 examples\n" in text and "rank" not in text
    assert text.count("neither intervals nor probabilities: the step time is not from the time model") == 1
    assert text.count("start-up      not known and not counted") == 1


def test_one_answer_has_lines_of_its_own(simulated: Predictions) -> None:
    one = planned(simulated[:1], deadline_s=3600.0, prices=Prices(per_worker_hour=0.45))
    job = job_of(one[0])
    text = str(one)
    assert "90 epochs of 50000 examples: 782 steps of 2 x 32 examples an epoch, 70380 in all" in text
    assert f"total time    {job.total_s / 60:.1f} min (" in text and " with 90 %)" in text
    assert f"cost          {job.cost:.3f} (" in text and "at 0.9 an hour" in text
    assert "limits        deadline 1.00 h: met; probability to meet it > 99 %" in text
    assert "start-up      30.0 s, as told" in text
    assert "neither" not in text.partition("job  ")[2]


def test_a_step_time_of_its_own_comes_first_and_is_named(simulated: Predictions) -> None:
    one = planned(simulated)[0]
    assert one.step_time is not None and one.step_time.source == "time model"
    assert one.step_interval(0.9) == StepDistribution.of(one.step_time_s or 0.0, ERRORS).interval(0.9)
    least, greatest = one.step_interval() or (0.0, 0.0)
    assert least < (one.step_time_s or 0) < greatest
    found = planned(simulated).to_json()["predictions"][0]
    assert (found["step_time_from"], found["step_interval_s"]) == ("time model", [least, greatest])
    assert found["job"]["interval"]["total_s"] == pytest.approx([30 + 70380 * least, 30 + 70380 * greatest])
    assert " (time model; " in str(planned(simulated)[:1])
    assert "step time  by the time model" in str(planned(simulated))


def test_settings_are_ranked_by_probability_then_cost(
    simulated: Predictions, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = [one.step_time_s or 0.0 for one in simulated]
    slow, fast = SETTINGS if steps[0] > steps[1] else SETTINGS[::-1]
    totals = {one.setting: job_of(one).total_s for one in planned(simulated)}
    prices = Prices(by_setting={slow: 1.0, fast: 4.0})
    tight = planned(simulated, deadline_s=1.05 * totals[slow], prices=prices).ranking
    assert [one.setting for one in tight] == [fast, slow]
    assert [job_of(one).meets for one in tight] == [True, True]
    assert job_of(tight[0]).probability == 1.0 and 0.5 < job_of(tight[1]).probability < 0.9
    # Both are sure of it: the cheaper one is first.
    assert [one.setting for one in planned(simulated, deadline_s=10 * totals[slow], prices=prices).ranking] == [
        slow,
        fast,
    ]
    # Only one meets the budget as well.
    both = planned(simulated, deadline_s=10 * totals[slow], budget=1.1 * totals[slow] / 3600, prices=prices)
    text, found = str(both), both.to_json()["ranking"]
    assert [(one["rank"], one["setting"], one["meets"]) for one in found] == [(1, slow, True), (None, fast, False)]
    assert [SETTINGS[one["prediction"]] for one in found] == [slow, fast]
    assert found[1]["probability"] == 0.0 and found[1]["reasons"][0].endswith(" over the budget")
    rows = [line for line in text.splitlines() if line.startswith(("1  ", "-  "))]
    assert rows[0].split()[:2] == ["1", slow] and rows[0].endswith("%")
    assert rows[1].split()[:2] == ["-", fast] and rows[1].endswith(" over the budget")


def test_without_probabilities_the_ranking_is_by_cost_and_time(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["resnet20", "--setting", *SETTINGS, *PLAN, "--start-up", "1min", "--deadline"]
    assert main([*words, "8h", "--price-per-hour", "1", "100", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [one["setting"] for one in found["ranking"]] == list(SETTINGS)
    assert [one["probability"] for one in found["ranking"]] == [None, None]
    assert main([*words, "61s"]) == 0
    text = capsys.readouterr().out
    assert "deadline 1.02 min" in text and text.count(" late\n") == 2 and "\n1 " not in text


def test_a_ranking_over_answers_of_two_kinds_says_so(simulated: Predictions) -> None:
    line = "rank          over measured and simulated answers: a small difference may be theirs"
    measured = driple.predict("resnet20", setting="cpu-p1w2-1g")
    both = Predictions((*simulated[:1], *measured))
    assert line in str(without_model(both, deadline_s=1e6)).splitlines()
    assert line not in str(without_model(simulated, deadline_s=1e6)).splitlines()
    assert line not in str(planned(both, deadline_s=1e6)).splitlines()


def test_a_start_up_that_takes_all_the_time_is_the_reason(checkout: Path, empty_folder: Path) -> None:
    driple.build_dataset(checkout / "tests/data/runs", output="datasets")
    (one,) = driple.predict("resnet20", setting=SETTINGS[0], epochs=1, examples=1, deadline=0.5)
    job = job_of(one)
    assert 1 < job.start_up_s < 10 and "3 measured runs of cpu-p1w2-1g" in job.start_up.source
    assert job.meets is False and "deadline: start-up alone takes longer" in str(Predictions((one,)))
    assert f"start-up      {job.start_up_s:.2f} s, " in str(Predictions((one,)))


def test_a_frame_has_the_job(simulated: Predictions) -> None:
    frame = planned(simulated, deadline_s=3600.0, prices=Prices(per_worker_hour=1.0)).to_frame()
    for name in ("steps", "epoch_s", "total_s", "total_s_least", "total_s_greatest", "cost", "probability"):
        assert frame[name].notna().all(), name
    assert (frame["total_s_least"] < frame["total_s"]).all() and (frame["total_s"] < frame["total_s_greatest"]).all()
    assert "total_s" not in simulated.to_frame().columns


def test_an_inspector_in_memory_takes_a_plan(checkout: Path) -> None:
    inspector = driple.Inspector.load(checkout / "inspectors/cpu-p1w2-1g")
    (one,) = inspector.predict("resnet20", epochs=2, examples=100, start_up="5s", price_per_hour=3600)
    assert job_of(one).total_s == pytest.approx(5 + 4 * (one.step_time_s or 0)) == job_of(one).cost
    with pytest.raises(BadInput, match="--epochs needs --examples"):
        inspector.predict("resnet20", epochs=2)


def test_a_graph_without_a_batch_size_needs_one(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = next((checkout / "tests/data/graphs").glob("*.pb*"))
    words = ["--graph", str(graph), "--setting", "cpu-p1w2-1g", *PLAN]
    assert "give --batch-size" in refused(words, capsys)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--epochs", "90"], "--epochs needs --examples"),
        (["--examples", "90"], "--examples needs --epochs"),
        ([*PLAN, "--budget", "50"], "--budget needs a price"),
        (["--deadline", "8h"], "--deadline needs --epochs and --examples"),
        (["--epochs", "-1", "--examples", "5"], "--epochs: expected a number above 0, got '-1'"),
        (["--epochs", "0", "--examples", "5"], "--epochs: expected a number above 0, got 0.0"),
        (["--epochs", "1", "--examples", "1e6"], "--examples: expected a whole number, got '1e6'"),
        ([*PLAN, "--deadline", "8"], "--deadline: expected a duration with its unit"),
        ([*PLAN, "--deadline", "10s", "--start-up", "20s"], "leaves no time for training after --start-up"),
        ([*PLAN, "--price-per-hour", "1", "2", "3"], "3 prices for 2 settings"),
        ([*PLAN, "--price-per-hour", "1", f"{SETTINGS[0]}=2"], "give every price with its setting"),
        ([*PLAN, "--price-per-hour", f"{SETTINGS[0]}=2"], f"no price of {SETTINGS[1]}"),
        ([*PLAN, "--price-per-hour", "cheap=x"], "--price-per-hour: expected a number above 0, got 'x'"),
        ([*PLAN, "--role", "ps"], "the cycle of role ps is not a training step"),
    ],
)
def test_a_wrong_plan_is_refused_in_one_line(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(["resnet20", "--setting", *SETTINGS, *words], capsys)


def test_the_model_may_come_after_prices(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--setting", SETTINGS[0], *PLAN, "--price-per-hour", "0.9", "resnet20"]) == 0
    assert "at 0.9 an hour" in capsys.readouterr().out
    named = f"{SETTINGS[0]}=0.5"
    assert main(["--setting", SETTINGS[0], *PLAN, "--price-per-hour", named, "resnet20"]) == 0
    assert "at 0.5 an hour" in capsys.readouterr().out


def test_pictures_have_limits_and_probabilities(simulated: Predictions, empty_folder: Path) -> None:
    pytest.importorskip("matplotlib")
    found = planned(simulated, deadline_s=1800.0, budget=10.0, prices=Prices(per_worker_hour=1.0))
    draw(Path("jobs.svg"), found)
    text = (empty_folder / "jobs.svg").read_text()
    for part in ("total time [min]", "dashed: deadline 30.0 min", "dashed: budget 10.0", "whiskers: 90 % interval"):
        assert part in text, part
    assert "probability to meet the limits" in text and "SIMULATED: v100-p1w2-pcie, v100-p2w2-40g" in text
    draw(Path("one.svg"), found[:1])
    assert "90 epochs of 50000 examples: " in (empty_folder / "one.svg").read_text()
    draw(Path("plain.svg"), Predictions(simulated.items))
    assert "total time" not in (empty_folder / "plain.svg").read_text()
