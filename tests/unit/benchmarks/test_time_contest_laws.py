"""Contestants that are laws, against cases that can be computed by hand. None of them looks at steps of tested rows."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from time_contest import ernest, habitat, ours, paleo, setting_mean, simulator_alone
from time_contest.contestant import Contestant, OwnRuns
from time_contest.experiment_design import chosen_runs
from time_contest.features import graph_totals, link_seconds
from time_contest.job_runs import MOST_RUNS, JobRuns, machine_seconds, near_runs, random_runs
from time_contest.registry import contestants
from time_contest.relative_lstsq import relative_rates

MakeRow = Callable[..., Any]

SETTINGS = ("cpu-p1w1-1g", "cpu-p1w2-1g", "cpu-p2w2-1g", "cpu-p1w4-1g", "cpu-p2w4-1g")


def every_configuration(make_row: MakeRow, step_of: Callable[[Any], float], **more: Any) -> list[Any]:
    rows = [make_row(setting, batch_size=size, **more) for setting in SETTINGS for size in (4, 16, 64)]
    return [dataclasses.replace(row, step_s=step_of(row), repeats=(step_of(row),)) for row in rows]


def test_the_mean_of_a_setting_is_geometric_and_falls_back_to_the_machine(make_row: MakeRow) -> None:
    train = [make_row("cpu-p1w1-1g", 1.0), make_row("cpu-p1w1-1g", 4.0), make_row("cpu-p1w2-1g", 32.0, machine="two")]
    predict = setting_mean.learn(train, 0)
    asked = [make_row("cpu-p1w1-1g"), make_row("cpu-p2w2-1g"), make_row("cpu-p1w2-1g", machine="two")]
    assert predict(asked) == pytest.approx([2.0, 2.0, 32.0])


@pytest.mark.parametrize("learn", [ernest.learn_absolute, ernest.learn_relative, ernest.learn_pooled])
def test_ernest_finds_its_own_law_again(make_row: MakeRow, learn: Callable[..., Any]) -> None:
    def law(row: Any) -> float:
        machines = row.setting.servers + row.setting.workers
        scale = row.example.workload["batch_size"] * row.setting.workers
        return float(0.1 + 0.02 * scale / machines + 0.05 * math.log(machines) + 0.01 * machines)

    rows = every_configuration(make_row, law)
    asked = make_row("cpu-p4w4-1g", batch_size=32)
    assert learn(rows, 0)([asked])[0] == pytest.approx(law(asked), rel=1e-3)


def test_the_design_of_experiments_prefers_runs_that_differ() -> None:
    same, other = [1.0, 4.0, math.log(2), 2.0], [1.0, 64.0, math.log(8), 8.0]
    features = np.array([same, same, same, other])
    assert chosen_runs(features, np.ones(4), 2) in ([0, 3], [1, 3], [2, 3])


def test_the_design_of_experiments_keeps_to_its_budget() -> None:
    features = np.array([[1.0, size, math.log(1 + size), size] for size in (1.0, 2.0, 3.0, 4.0)])
    assert 3 not in chosen_runs(features, np.array([1.0, 1.0, 1.0, 100.0]), 1)
    assert chosen_runs(features, np.ones(4), 4) == [0, 1, 2, 3]


def test_sample_runs_are_other_runs_of_the_very_job(make_row: MakeRow) -> None:
    row = make_row("cpu-p1w1-1g", batch_size=8)
    same_job = [make_row("cpu-p1w1-1g", batch_size=32), make_row("cpu-p1w2-1g", batch_size=8, machine="two")]
    other_jobs = [make_row("cpu-p1w2-1g", update="async"), make_row("cpu-p1w2-1g", width=0.5)]
    runs = JobRuns([row, *same_job, *other_jobs])
    assert runs.others(row) == same_job
    assert near_runs(row, runs) == same_job  # one run on the machine is too few
    assert machine_seconds(same_job) == pytest.approx(18 * 2 + 18 * 3)


def test_at_most_five_runs_of_the_machine_are_drawn_and_always_the_same(make_row: MakeRow) -> None:
    rows = every_configuration(make_row, lambda row: 1.0)
    far = make_row("cpu-p1w1-1g", batch_size=128, machine="two")
    runs = JobRuns([*rows, far])
    chosen = random_runs(rows[0], runs, 0)
    assert len(chosen) == MOST_RUNS and rows[0] not in chosen and far not in chosen
    assert chosen == random_runs(rows[0], runs, 0)
    assert any(random_runs(row, runs, 0) != random_runs(row, runs, 1) for row in rows)


def test_the_rate_of_one_number_is_a_weighted_median() -> None:
    work, seconds = np.array([1.0, 1.0, 1.0]), np.array([1.0, 2.0, 4.0])
    # Weights 1, 1/2, 1/4: half of their sum is reached at the first.
    assert paleo.best_rate(work, np.zeros(3), seconds) == pytest.approx(1.0)
    assert paleo.best_rate(work, np.full(3, 9.0), seconds) == 0.0  # the link alone takes longer
    tried = np.linspace(0, 5, 501)
    rest = np.array([0.5, 0.1, 0.2])
    errors = [np.abs((rate * work + rest) / seconds - 1).mean() for rate in tried]
    assert paleo.best_rate(work, rest, seconds) == pytest.approx(tried[int(np.argmin(errors))], abs=0.011)


def test_the_analytic_models_find_their_own_law_again(make_row: MakeRow) -> None:
    rows = [make_row(traffic=1e6 * number, graph=number) for number in range(1, 9)]
    totals = graph_totals(rows)
    assert totals[:, 3] == pytest.approx(link_seconds(rows)) and (totals[:, 3] > 0).all()
    for learn, rates in ((paleo.learn_one_rate, [2e-10, 0, 1]), (paleo.learn_three_rates, [1e-10, 3e-10, 0.5])):
        steps = totals[:, [0, 1, 3]] @ np.array(rates)
        train = [dataclasses.replace(row, step_s=step) for row, step in zip(rows, steps.tolist(), strict=True)]
        assert learn(train[1:], 0)(rows[:1]) == pytest.approx(steps[:1], rel=1e-3)


def test_relative_rates_are_never_negative_and_ignore_an_outlier() -> None:
    amounts = np.c_[np.arange(1.0, 21.0), np.ones(20)]
    seconds = amounts @ [2.0, 3.0]
    seconds[4] *= 20
    assert relative_rates(amounts, seconds) == pytest.approx([2.0, 3.0], rel=0.02)
    assert relative_rates(np.c_[np.ones(5), np.arange(5.0)], 10 - np.arange(5.0)).min() >= 0


def test_a_run_elsewhere_is_scaled_by_the_ratio_of_rooflines(make_row: MakeRow) -> None:
    here, there = ([make_row(machine=machine, graph=number) for number in range(20)] for machine in ("one", "two"))
    amounts = habitat.class_amounts(here)
    seconds = amounts @ np.linspace(1e-4, 3e-4, amounts.shape[1])
    train = [dataclasses.replace(row, step_s=step) for row, step in zip(here, seconds.tolist(), strict=True)]
    train += [dataclasses.replace(row, step_s=3 * step) for row, step in zip(there, seconds.tolist(), strict=True)]
    measured, asked = make_row(step_s=0.5, graph=50), make_row(machine="two", graph=50)
    runs = JobRuns([measured, asked])
    assert habitat.origin(asked, runs, 0) == [measured]
    assert habitat.learn(train, 0)(asked, [measured]) == pytest.approx(1.5, rel=1e-3)
    assert math.isnan(habitat.learn(train, 0)(asked, []))


def test_the_simulator_is_scaled_by_the_median_of_a_place(make_row: MakeRow) -> None:
    train = [make_row(step_s=step, simulated_s=1.0) for step in (2.0, 3.0, 90.0)]
    asked = [make_row(simulated_s=0.5), make_row()]
    assert simulator_alone.learn_shipped(train, 0)(asked) == pytest.approx([1.5, np.nan], nan_ok=True)


def test_refitted_simulations_are_those_of_the_measured_rows() -> None:
    from driple.inspector.time.time_rows import read_time_rows

    rows = read_time_rows(Path(__file__).parents[3] / "datasets", ["cpu-p1w1-1g"])
    found = simulator_alone.refitted_seconds(rows, rows)
    known = [row for row in rows if "v490" in row.machine]  # the machine of the figures
    assert np.isnan(found).sum() == len(rows) - len(known)
    shares = np.array([row.step_s for row in rows]) / found
    assert 0.8 < np.nanmedian(shares) < 1.2
    assert np.isnan(simulator_alone.refitted_seconds(rows, rows[:20])).all()


def test_ours_refuses_a_machine_of_which_nothing_is_known(make_row: MakeRow) -> None:
    rows = [
        make_row(setting, 0.1 * number, graph=number, traffic=1e5 * number, family=f"family {number % 3}")
        for setting in SETTINGS[:2]
        for number in range(1, 15)
    ]
    anchor = make_row("cpu-p1w1-1g", 0.2, graph=3, machine="two", traffic=3e5)
    asked = [make_row("cpu-p1w1-1g", graph=4, machine=machine, traffic=4e5) for machine in ("one", "two")]
    known, unknown = ours.learn(rows, 0)(asked)
    assert known > 0 and math.isnan(unknown)
    assert (ours.learn([*rows, anchor], 0)(asked) > 0).all()


QUICK = (
    *("mean", "ernest-absolute", "ernest-relative", "ernest-runs", "ernest-design", "habitat"),
    *("paleo-1", "paleo-3", "simulator", "ours", "ours-laws", "totals-svr", "trees", "cherrypick"),
)


@pytest.mark.parametrize("name", QUICK)
def test_no_contestant_looks_at_the_steps_of_tested_rows(name: str, make_row: MakeRow, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    rows = [
        make_row(setting, float(rng.uniform(0.1, 1)), graph=number, batch_size=size, traffic=1e5 * number, **family)
        for setting in SETTINGS[:2]
        for number in range(1, 13)
        for size in (4, 8)
        for family in ({"family": f"family {number % 3}", "model": f"model {number}", "simulated_s": 0.1 * number},)
    ]
    train, test = rows[:40], rows[40:]
    changed = [dataclasses.replace(row, step_s=77.0, repeats=(77.0,)) for row in test]
    contestant = contestants(tmp_path)[name]
    found = predicted(contestant, train, test, rows)
    assert np.isfinite(found).any()
    if contestant.needs_runs:  # each row is predicted from others, but not from itself
        for number, row in enumerate(test):
            own = predicted(contestant, train, [changed[number]], [one for one in rows if one is not row])
            assert own == pytest.approx([found[number]], nan_ok=True)
    else:
        assert predicted(contestant, train, changed, rows) == pytest.approx(found, nan_ok=True)


def predicted(contestant: Contestant, train: Sequence[Any], test: Sequence[Any], runs: Sequence[Any]) -> Any:
    return contestant.fit(train, JobRuns(runs), 0)(test)


def test_every_contestant_names_its_source_and_its_code(tmp_path: Path) -> None:
    every = contestants(tmp_path)
    assert len({one.title for one in every.values()}) == len(every)
    for one in every.values():
        assert one.source and one.code and all(path.exists() for path in one.code)
        assert one.needs_runs == isinstance(one, OwnRuns)
