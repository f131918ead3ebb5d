"""Errors, noise, intervals, the search, targets and the page of the contest."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import time_results
from time_contest.cherrypick_search import STARTS, costs, expected_improvement, search, search_jobs
from time_contest.contest import predict_folds
from time_contest.errors import bootstrap, coverage, error_of, noise_floor, percent_errors
from time_contest.figures import ALL, figures_of, measured_rows, names_of_places
from time_contest.folds import folds_of
from time_contest.kept_predictions import KeptPredictions
from time_contest.page import page
from time_contest.registry import OURS, contestants
from time_contest.targets import is_other_link, verdicts

MakeRow = Callable[..., Any]


def test_errors_are_in_percent_of_the_measured_step() -> None:
    errors = percent_errors(np.array([1.0, 2.0, 4.0, 1.0]), np.array([1.1, 1.0, np.nan, 1.0]))
    assert errors[:2] == pytest.approx([10.0, 50.0]) and math.isnan(errors[2])
    found = error_of(errors, ["a", "a", "b", "b"])
    assert found is not None
    assert (found.rows, found.predicted) == (4, 3)
    assert found.mape == pytest.approx(20.0) and found.median == pytest.approx(10.0)
    assert error_of(np.array([np.nan]), ["a"]) is None


def test_intervals_are_over_families_and_not_over_rows() -> None:
    low, high = bootstrap(np.array([1.0, 9.0]), ["a", "b"])
    assert (low, high) == (1.0, 9.0)  # a half of the samples has one family only
    assert bootstrap(np.array([1.0, 9.0]), ["a", "a"]) == (None, None)
    many = [f"family {number}" for number in range(50)]
    wide, narrow = (bootstrap(np.tile([1.0, 9.0], 25), names) for names in (["a", "b"] * 25, many))
    assert wide[0] is not None and narrow[0] is not None and wide[0] < narrow[0]


def test_noise_is_one_run_against_the_mean_of_the_others(make_row: MakeRow) -> None:
    rows = [make_row(repeats=(1.0, 2.0, 3.0)), make_row(repeats=(5.0,))]
    assert noise_floor(rows) == pytest.approx((60 + 0 + 100) / 3)
    assert noise_floor(rows[1:]) is None


def test_intervals_come_from_the_errors_of_other_families() -> None:
    families = [f"family {number % 5}" for number in range(100)]
    measured = np.exp(np.random.default_rng(0).normal(0, 0.1, 100))
    found = coverage(measured, np.ones(100), families)
    assert found is not None and 85 <= found <= 97
    measured[::5] *= 9  # one family is unlike the others
    found = coverage(measured, np.ones(100), families)
    assert found is not None and found <= 80
    assert coverage(measured, np.ones(100), ["a"] * 100) is None


def test_expected_improvement_by_hand() -> None:
    assert expected_improvement(0.0, 0.0, 1.0) == pytest.approx(1 / math.sqrt(2 * math.pi))
    assert expected_improvement(1.0, 0.4, 0.0) == pytest.approx(0.6)
    assert expected_improvement(0.0, 5.0, 0.1) == pytest.approx(0.0, abs=1e-9)


def test_a_search_stops_where_nothing_can_be_gained() -> None:
    configuration = np.c_[np.arange(12.0), np.ones(12), np.ones(12), np.ones(12)]
    assert len(search(configuration, np.ones(12))) == STARTS
    cost = np.exp(-0.5 * np.arange(12.0))
    assert len(search(configuration, np.ones(12), least_runs=6)) == 6
    tried = search(configuration, cost)
    assert STARTS < len(tried) <= 12 and len(set(tried)) == len(tried)
    assert cost[tried].min() <= cost.min() * math.e


def test_the_regret_of_a_perfect_predictor_is_nothing(make_row: MakeRow) -> None:
    rows = [
        make_row(setting, 0.1 * workers + 0.01 * size, batch_size=size)
        for workers, setting in enumerate(("cpu-p1w1-1g", "cpu-p1w2-1g", "cpu-p1w4-1g"), start=1)
        for size in (4, 16, 64)
    ]
    steps = np.array([row.step_s for row in rows])
    assert costs(rows[:1], steps[:1]) == pytest.approx([2 * 0.14 / 4])
    found = search_jobs(rows, steps)
    assert found is not None and found.jobs == 1 and found.configurations == 9
    short, published, ours, random = found.ways
    assert (ours.runs, ours.machine_s, ours.regret_pct) == (0, 0, 0) and random.regret_pct > 0
    assert STARTS <= short.runs <= published.runs and published.runs >= 6
    assert published.regret_pct <= short.regret_pct
    assert search_jobs(rows[:3], steps[:3]) is None


@pytest.fixture
def figures(make_row: MakeRow, tmp_path: Path) -> dict[str, Any]:
    """Of a small contest."""
    rows = [
        make_row(
            *(setting, (0.01 + 0.002 * number) * (1 + workers)),
            **{
                "graph": number,
                "batch_size": size,
                "traffic": 1e5 * number,
                "split": "test" if number > 9 else "train",
            },
            **{
                "family": f"family {number % 4}",
                "model": f"model {number}",
                "repeats": (1.0, 1.1) if number < 3 else (),
            },
        )
        for workers, setting in enumerate(("cpu-p1w1-1g", "cpu-p1w2-1g"))
        for number in range(1, 13)
        for size in (4, 8)
    ]
    every = contestants(tmp_path)
    chosen = {name: every[name] for name in (OURS, "mean", "ernest-relative", "ernest-runs", "ernest-design")}
    folds = folds_of(rows, ["architecture", "family"])
    kept = KeptPredictions(tmp_path, "a" * 64)
    found = predict_folds(lambda fold: rows, chosen, folds, kept)
    known = {name: dict(enumerate(own)) for name, own in found.items()}
    del known["mean"][2]  # a fold that is still missing
    figures = figures_of(rows, chosen, folds, known)
    made = {"date": "2026-01-01", "machine": "none", "minutes": 1}
    return {"made": made, **figures, "answers": {OURS: 0.002}, "rows": measured_rows(rows, names_of_places(rows))}


def test_figures_can_be_kept_as_json_and_make_the_page(figures: dict[str, Any]) -> None:
    again = json.loads(json.dumps(figures))
    drawn = page(again)
    assert drawn == page(figures)
    assert "NOT reached" in drawn or "| reached |" in drawn
    for title in ("## Architecture split", "## Leave one family out", "## Methods side by side", "noise floor"):
        assert title in drawn


def test_a_part_with_a_missing_fold_has_no_figures(figures: dict[str, Any]) -> None:
    assert "mean" in figures["parts"]["architecture"] and "mean" not in figures["parts"]["family"]


def test_verdicts_follow_from_the_figures(figures: dict[str, Any]) -> None:
    found = {one.what: one for one in verdicts(figures)}
    mape = figures["parts"]["architecture"][OURS]["cpu-p1w1-1g"]["mape"]
    assert found["architecture split, cpu-p1w1-1g"].found == f"{mape:.1f} %"
    figures["parts"]["architecture"][OURS]["cpu-p1w1-1g"]["mape"] = 99.0
    changed = {one.what: one for one in verdicts(figures)}
    assert not changed["architecture split, cpu-p1w1-1g"].reached
    assert found["answer, graph in memory, with simulation"].reached
    reused = figures["parts"]["family"]
    ratio = reused["ernest-relative"][ALL]["mape"] / reused[OURS][ALL]["mape"]
    assert found["error of Ernest, reused / ours, leave one family out"].found == f"{ratio:.1f}"


def test_another_link_is_one_that_no_other_setting_of_the_machine_has() -> None:
    names = {"cpu-p1w1-1g": "A", "cpu-p1w2-1g": "A", "cpu-p1w2-5g": "A", "cpu-p1w1-300m": "B"}
    figures = {"places": {name: {"machine": machine} for name, machine in names.items()}}
    assert [is_other_link(figures, name) for name in names] == [False, False, True, True]


def test_unknown_contestants_and_folds_are_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        time_results.main(["--folds", "architectur"])
    assert "architecture" in capsys.readouterr().err


@pytest.mark.skipif(not (time_results.DATA).is_file(), reason="no figures yet")
def test_the_page_is_made_of_its_figures() -> None:
    found = json.loads(time_results.DATA.read_text())
    assert page(found) == Path("docs/benchmarks/training-time.md").read_text()
