"""From the time of a step to epochs, total time, cost and the probability of limits, by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from driple.contracts.errors import BadInput
from driple.contracts.setting import Setting
from driple.inspector.predict.plan_request import plan_of, with_workers, worker_counts
from driple.inspector.time.start_up import StartUp
from driple.inspector.time.step_distribution import StepDistribution
from driple.inspector.time.training_plan import JobEstimate, Prices, TrainingPlan

SETTINGS = tuple(map(Setting.parse, ("cpu-p1w2-1g", "cpu-p2w2-1g")))
JOB = {"epochs": 3, "examples": 1000}


def job(plan: dict[str, Any] | None = None, **values: Any) -> JobEstimate:
    made = TrainingPlan(**{"epochs": 2.0, "examples": 1000, **(plan or {})})
    return JobEstimate(**{"plan": made, "workers": 2, "batch_size": 32, "step_s": 0.5, **values})


def plan(**options: Any) -> TrainingPlan:
    found = plan_of(SETTINGS, "worker", **{**JOB, **options})
    assert found is not None
    return found


def test_an_epoch_ends_with_an_incomplete_step() -> None:
    one = job()
    assert one.steps_per_epoch == 16  # 1000 / 64 = 15.6
    assert (one.steps, one.epoch_s, one.total_s) == (32, 8.0, 16.0)
    assert one.examples_per_s == 128
    assert job(plan={"examples": 64}).steps_per_epoch == 1
    assert job(plan={"examples": 1, "epochs": 0.1}).steps == 1
    assert job(plan={"examples": 64 * 30, "epochs": 0.1}).steps == 3  # and not 4: 0.1 * 30 is 3.0000000000000004


def test_start_up_and_price_are_those_of_the_whole_job() -> None:
    one = job(start_up=StartUp(20.0, "as told"), price_per_hour=3600.0)
    assert (one.epoch_s, one.total_s) == (8.0, 36.0)
    assert one.cost == pytest.approx(36.0) and one.epoch_cost == pytest.approx(8.0)
    assert job().cost is None and job().epoch_cost is None


def test_intervals_are_those_of_the_step_time() -> None:
    errors = [math.log(1 + number / 100) for number in range(-10, 11)]
    told = StepDistribution.of(0.5, errors)
    one = job(distribution=told, start_up=StartUp(20.0, "as told"), price_per_hour=3600.0)
    least, greatest = told.interval(0.8)
    assert least < 0.5 < greatest
    assert one.interval("step_s", 0.8) == pytest.approx((least, greatest))
    assert one.interval("epoch_s", 0.8) == pytest.approx((16 * least, 16 * greatest))
    assert one.interval("total_s", 0.8) == pytest.approx((20 + 32 * least, 20 + 32 * greatest))
    assert one.interval("cost", 0.8) == one.interval("total_s", 0.8)
    assert job(distribution=told).interval("cost", 0.8) is None
    assert job().interval("total_s", 0.8) is None


def test_the_probability_of_a_deadline_is_that_of_a_step_time() -> None:
    told = StepDistribution.of(0.5, [math.log(factor) for factor in (0.8, 0.9, 1.1, 1.2)])
    values: dict[str, Any] = {"distribution": told, "start_up": StartUp(20.0, "as told")}
    one = job(plan={"deadline_s": 36.0}, **values)
    assert one.meets and one.probability == 0.5  # a step may take (36 - 20) / 32 = 0.5 s
    assert job(plan={"deadline_s": 20 + 32 * 0.56}, **values).probability == 0.75
    late = job(plan={"deadline_s": 35.0}, **values)
    assert late.meets is False and [limit.name for limit in late.missed] == ["deadline"]
    assert job(plan={"deadline_s": 19.0}, **values).probability == 0.0
    assert job(**values).meets is None and job(**values).probability is None
    assert job(plan={"deadline_s": 36.0}).probability is None  # no distribution: predicted to be met, nothing more
    assert job(plan={"deadline_s": 36.0}).meets


def test_a_budget_limits_the_time_and_both_limits_hold_together() -> None:
    told = StepDistribution.of(0.5, [math.log(factor) for factor in (0.8, 0.9, 1.1, 1.2)])
    values: dict[str, Any] = {"distribution": told, "price_per_hour": 3600.0}
    assert job(plan={"budget": 32 * 0.56}, **values).probability == 0.75
    both = job(plan={"budget": 32 * 0.56, "deadline_s": 32 * 0.46}, **values)
    assert both.probability == 0.5 and [limit.name for limit in both.missed] == ["deadline"]
    assert job(plan={"budget": 1.0}).limits == ()  # no price


def test_prices_are_of_a_cluster_or_of_a_worker() -> None:
    assert plan(price_per_hour=0.9).prices.by_setting == {"cpu-p1w2-1g": 0.9, "cpu-p2w2-1g": 0.9}
    assert plan(price_per_hour=[0.9, 1.8]).prices.of("cpu-p2w2-1g", 2) == 1.8
    named = plan(price_per_hour={"cpu-p2w2-1g": 2.0, "CPU-P1w2-1G": 1.0})
    assert [named.prices.of(str(one), 2) for one in SETTINGS] == [1.0, 2.0]
    assert plan(price_per_worker_hour=0.5).prices.of("cpu-p1w2-1g", 4) == 2.0
    assert Prices().of("cpu-p1w2-1g", 2) is None
    scaled = {str(one): 1.0 for one in with_workers(SETTINGS, [1, 2])}
    assert plan(workers=[1, 2], price_per_hour=scaled).prices.by_setting == scaled


def test_durations_have_units_or_are_seconds() -> None:
    assert plan(deadline="1.5h", start_up="30s").deadline_s == 5400
    assert plan(deadline=5400, start_up=0).start_up_s == 0.0
    assert plan().start_up_s is None and not plan().limited
    assert plan_of(SETTINGS, "worker") is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"examples": None}, "--epochs needs --examples"),
        ({"epochs": None}, "--examples needs --epochs"),
        ({"epochs": None, "examples": None, "deadline": "8h"}, "--deadline needs --epochs and --examples"),
        ({"epochs": None, "examples": None, "price_per_hour": 1.0}, "--price-per-hour needs --epochs"),
        ({"epochs": None, "examples": None, "start_up": "1s"}, "--start-up needs --epochs"),
        ({"epochs": 0}, "--epochs: expected a number above 0, got 0"),
        ({"epochs": -1}, "--epochs: expected a number above 0, got -1"),
        ({"epochs": math.nan}, "--epochs: expected a number above 0, got nan"),
        ({"epochs": True}, "--epochs: expected a number above 0, got True"),
        ({"examples": 0}, "--examples: expected a whole number from 1"),
        ({"examples": 1.5}, "--examples: expected a whole number from 1"),
        ({"budget": 50}, "--budget needs a price"),
        ({"budget": 0, "price_per_hour": 1}, "--budget: expected a number above 0, got 0"),
        ({"price_per_hour": -0.9}, "--price-per-hour: expected a number above 0, got -0.9"),
        ({"price_per_hour": [1, 2, 3]}, "3 prices for 2 settings"),
        ({"price_per_hour": object()}, "--price-per-hour: expected a number above 0"),
        ({"price_per_hour": {"cpu-p1w2-1g": 1.0}}, "no price of cpu-p2w2-1g"),
        ({"price_per_hour": {"cpu-p9w9-1g": 1.0}}, "cpu-p9w9-1g=...: not a setting of this prediction"),
        ({"price_per_hour": 1, "price_per_worker_hour": 1}, "give one of them"),
        ({"price_per_hour": 1, "workers": [1, 2]}, "is of one cluster, and --workers makes several"),
        ({"deadline": "8"}, "--deadline: expected a duration with its unit such as .*, got '8'"),
        ({"deadline": "0h"}, "--deadline: expected a duration above 0"),
        ({"deadline": -5}, "--deadline: expected a duration above 0"),
        ({"deadline": math.inf}, "--deadline: expected a duration above 0"),
        ({"start_up": "soon"}, "--start-up: expected a duration with its unit"),
        (
            {"deadline": "30s", "start_up": "1min"},
            "--deadline '30s' leaves no time for training after --start-up '1min'",
        ),
    ],
)
def test_a_wrong_plan_is_one_line(options: dict[str, Any], message: str) -> None:
    with pytest.raises(BadInput, match=message) as found:
        plan(**options)
    assert "\n" not in str(found.value)


def test_a_server_has_no_training_step() -> None:
    with pytest.raises(BadInput, match="role ps is not a training step"):
        plan_of(SETTINGS, "ps", epochs=1, examples=1)


def test_numbers_of_workers_are_in_order_and_at_least_two() -> None:
    assert worker_counts([8, 1, 2, 2]) == (1, 2, 8)
    assert worker_counts(None) == ()
    assert list(map(str, with_workers(SETTINGS[:1], (1, 4)))) == ["cpu-p1w1-1g", "cpu-p1w4-1g"]
    assert with_workers(SETTINGS, ()) == SETTINGS
    for wrong in (4, [4], [0, 1], ["1", "2"], [1, 2.5], [1, True], [1, 5000], object()):
        with pytest.raises(BadInput, match="--workers: "):
            worker_counts(wrong)
