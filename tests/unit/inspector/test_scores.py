"""Scores, by hand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from driple.contracts.errors import BadInput
from driple.contracts.json_values import to_plain
from driple.contracts.metrics import COLUMNS
from driple.inspector.evaluation.scores import Score, Scores, mean_of, scores

WIDTH = len(COLUMNS)


def one(truth: list[float], predicted: list[float]) -> Scores:
    """Only the first target is known."""
    tables = np.full((2, len(truth), WIDTH), np.nan)
    tables[0, :, 0], tables[1, :, 0] = truth, predicted
    return scores(*tables)


def test_by_hand() -> None:
    found = one([1.0, 2.0, 5.0], [2.0, 2.0, 3.0]).targets[COLUMNS[0]]
    assert found.nrmse == pytest.approx((5 / 3) ** 0.5 / 4)
    assert found.mape == pytest.approx((1 + 0 + 0.4) / 3)
    assert found.r2 == pytest.approx(1 - 5 / (26 / 3))
    assert (found.rows, found.zeros, found.unpredicted) == (3, 0, 0)


def test_perfect_and_the_mean() -> None:
    truth = np.random.default_rng(0).random((9, WIDTH)) + 1
    perfect = scores(truth, truth).overall
    assert (perfect.nrmse, perfect.mape, perfect.r2, perfect.rows) == (0.0, 0.0, 1.0, 9 * WIDTH)
    assert scores(truth, np.tile(truth.mean(axis=0), (9, 1))).overall.r2 == pytest.approx(0)


def test_zeros_are_left_out_of_the_mape_and_counted() -> None:
    found = one([0.0, 2.0, 4.0], [1.0, 1.0, 4.0]).targets[COLUMNS[0]]
    assert found.mape == pytest.approx(0.25)
    assert found.zeros == 1
    assert found.nrmse == pytest.approx((2 / 3) ** 0.5 / 4)
    none = one([0.0, 0.0], [1.0, 1.0]).targets[COLUMNS[0]]
    assert (none.mape, none.zeros) == (None, 2)


def test_a_constant_has_no_range() -> None:
    found = one([3.0, 3.0], [3.0, 6.0]).targets[COLUMNS[0]]
    assert (found.nrmse, found.r2) == (None, None)
    assert found.mape == pytest.approx(0.5)
    assert one([3.0], [6.0]).overall.nrmse is None


def test_nulls_do_not_count_and_missing_predictions_are_counted() -> None:
    nan = float("nan")
    found = one([1.0, nan, 3.0, 5.0], [2.0, 9.0, 3.0, nan]).targets[COLUMNS[0]]
    assert found.nrmse == pytest.approx(0.5**0.5 / 2)
    assert (found.rows, found.unpredicted) == (2, 1)
    assert one([nan, nan], [1.0, 1.0]).overall == Score()


def test_means_give_each_target_the_same_weight() -> None:
    truth = np.tile(np.array([[0.0], [1.0], [2.0]]), WIDTH)
    predicted = truth.copy()
    predicted[:, 0] += 0.5
    truth[1:, 3:6] = np.nan
    found = scores(truth, predicted)
    assert list(found.resources) == ["gpu", "gpu_mem", "net_tx", "net_rx"]
    assert found.resources["gpu"].nrmse == pytest.approx(0.25 / 3)
    assert found.resources["gpu_mem"].nrmse is None
    assert found.overall.nrmse == pytest.approx(0.25 / 9)
    assert [name for name, _ in found.rows()] == [*COLUMNS, "gpu", "gpu_mem", "net_tx", "net_rx", "all"]
    assert mean_of([]) == Score()


def test_the_scale_of_a_target_does_not_matter() -> None:
    truth, predicted = np.random.default_rng(1).random((2, 20, WIDTH))
    small, large = scores(truth, predicted), scores(truth * 1e9, predicted * 1e9)
    for (_, a), (_, b) in zip(small.rows(), large.rows(), strict=True):
        assert (a.nrmse, a.mape, a.r2) == pytest.approx((b.nrmse, b.mape, b.r2))


def test_they_are_plain_values() -> None:
    found = one([1.0, 2.0, 5.0], [2.0, 2.0, 3.0])
    plain: Any = json.loads(json.dumps(to_plain(found), allow_nan=False))
    assert plain["targets"][COLUMNS[0]]["rows"] == 3
    assert plain["resources"]["gpu_mem"]["nrmse"] is None
    assert plain["overall"]["mape"] == found.overall.mape


def test_what_is_refused() -> None:
    with pytest.raises(BadInput, match="shape"):
        scores(np.zeros((3, WIDTH)), np.zeros((2, WIDTH)))
    with pytest.raises(BadInput, match="shape"):
        scores(np.zeros((3, 4)), np.zeros((3, 4)))
    with pytest.raises(BadInput, match="infinite"):
        scores(np.zeros((3, WIDTH)), np.full((3, WIDTH), np.inf))
