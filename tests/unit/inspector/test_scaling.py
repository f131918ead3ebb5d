"""Scales: learned on training rows, undone exactly, the same after inspector.json."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from driple.contracts.errors import BadInput, UnknownName
from driple.contracts.json_values import from_plain, to_plain
from driple.contracts.metrics import COLUMNS
from driple.inspector.data.scaling import FeatureScaler, TargetScaler, WorkloadScaler
from driple.inspector.data.workload_features import WORKLOAD_FEATURES

WIDTH = len(COLUMNS)
ALL: Any = np.ones(WIDTH, dtype=bool)


def targets(rows: int = 40, seed: int = 0) -> Any:
    return np.exp(np.random.default_rng(seed).normal(0, 2, (rows, WIDTH)))


def again(scaler: Any) -> Any:
    return from_plain(type(scaler), json.loads(json.dumps(to_plain(scaler), allow_nan=False)))


def test_log_features_have_mean_0_and_deviation_1_over_training_nodes() -> None:
    numbers = np.random.default_rng(0)
    graphs = [numbers.lognormal(3, 2, (nodes, 3)) for nodes in (4, 9, 30)]
    scaler = FeatureScaler.fit("log", graphs)
    scaled = np.concatenate([scaler.transform(graph) for graph in graphs])
    np.testing.assert_allclose(scaled.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(scaled.std(axis=0), 1)
    expected = (np.log1p(graphs[0][0, 1]) - scaler.mean[1]) / scaler.deviation[1]
    assert scaler.transform(graphs[0])[0, 1] == pytest.approx(expected)
    assert again(scaler) == scaler


def test_a_constant_feature_becomes_zero() -> None:
    scaler = FeatureScaler.fit("log", [np.array([[5.0, 1.0], [5.0, 2.0]])])
    assert scaler.transform(np.array([[5.0, 1.0]]))[0, 0] == 0
    assert np.isfinite(scaler.transform(np.array([[9.0, 1.0]]))).all()


def test_raw_features_stay() -> None:
    features = np.array([[5.0, 1e12], [5.0, 2.0]])
    scaler = FeatureScaler.fit("raw", [features])
    np.testing.assert_array_equal(scaler.transform(features), features)
    assert again(scaler) == scaler


def test_facts_that_vary_stay_and_what_is_unknown_is_the_mean() -> None:
    facts = np.full((4, len(WORKLOAD_FEATURES)), np.nan)
    facts[:, 0] = [1.0, 2.0, 3.0, np.nan]
    facts[:, 1] = 7.0
    facts[:, 2] = [0.1 + 0.2, 0.3, 0.3, 0.3]  # constant, but for the last bit
    facts[:, 5] = [np.nan, 4.0, 6.0, np.nan]
    scaler = WorkloadScaler.fit(facts)
    assert scaler.names == (WORKLOAD_FEATURES[0], WORKLOAD_FEATURES[5])
    assert len(scaler) == 2
    deviation = np.sqrt(2 / 3)
    expected = [[-1 / deviation, 0], [0, -1], [1 / deviation, 1], [0, 0]]
    np.testing.assert_allclose(scaler.transform(facts), expected, atol=1e-12)
    assert again(scaler) == scaler


def test_facts_of_which_none_varies() -> None:
    scaler = WorkloadScaler.fit(np.full((3, len(WORKLOAD_FEATURES)), np.nan))
    assert len(scaler) == 0
    assert scaler.transform(np.zeros((2, len(WORKLOAD_FEATURES)))).shape == (2, 0)


def test_log_targets_come_back() -> None:
    values = targets()
    values[0, 0] = 0.0
    values[3, 2] = np.nan
    scaler = TargetScaler.fit("log", values, ALL)
    scaled = scaler.transform(values)
    np.testing.assert_allclose(np.nanmean(scaled, axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(np.nanstd(scaled, axis=0), 1)
    np.testing.assert_allclose(scaler.inverse(scaled), values, rtol=1e-9, atol=1e-12)
    assert np.isnan(scaled[3, 2])
    assert again(scaler) == scaler


def test_the_offset_is_a_hundredth_of_the_median_positive_value() -> None:
    values = np.tile(np.array([[0.0], [0.0], [1.0], [3.0], [5.0]]), WIDTH)
    scaler = TargetScaler.fit("log", values, ALL)
    assert scaler.offset == pytest.approx((0.03,) * WIDTH)
    logs = np.log(values[:, 0] + 0.03)
    np.testing.assert_allclose(scaler.transform(values)[:, 4], (logs - logs.mean()) / logs.std())


def test_max_targets_are_shares_of_the_training_maximum() -> None:
    values = targets()
    scaler = TargetScaler.fit("max", values, ALL)
    np.testing.assert_allclose(scaler.transform(values), values / values.max(axis=0))
    np.testing.assert_allclose(scaler.inverse(scaler.transform(values)), values)
    assert scaler.inverse(np.full((1, WIDTH), -0.1)).tolist() == [[0.0] * WIDTH]
    assert again(scaler) == scaler


@pytest.mark.parametrize("kind", ["max", "log"])
def test_predictions_are_neither_negative_nor_absurd(kind: str) -> None:
    values = targets()
    scaler = TargetScaler.fit(kind, values, ALL)
    np.testing.assert_array_equal(scaler.inverse(np.full((1, WIDTH), -1e4)), np.zeros((1, WIDTH)))
    np.testing.assert_allclose(scaler.inverse(np.full((1, WIDTH), 1e4)), 10 * values.max(axis=0, keepdims=True))


@pytest.mark.parametrize("kind", ["max", "log"])
def test_what_is_at_the_limit_is_known_and_may_be_looked_at_without_it(kind: str) -> None:
    values = targets()
    scaler = TargetScaler.fit(kind, values, ALL)
    far = scaler.transform(np.stack([20 * values.max(axis=0), values.max(axis=0)]))
    assert scaler.at_limit(scaler.inverse(far)).tolist() == [[True] * WIDTH, [False] * WIDTH]
    np.testing.assert_allclose(scaler.inverse(far, far=1e6)[0], 20 * values.max(axis=0))
    assert not scaler.at_limit(np.full((1, WIDTH), np.nan)).any()


@pytest.mark.parametrize("kind", ["max", "log"])
def test_targets_that_are_not_usable_are_null_both_ways(kind: str) -> None:
    values = targets()
    values[:, 3:6] = np.nan
    scaler = TargetScaler.fit(kind, values, np.isfinite(values).any(axis=0))
    assert np.isnan(scaler.transform(targets())[:, 3:6]).all()
    assert np.isnan(scaler.inverse(np.zeros((2, WIDTH)))[:, 3:6]).all()
    assert np.isfinite(scaler.inverse(np.zeros((2, WIDTH)))[:, [0, 1, 2, *range(6, WIDTH)]]).all()
    assert again(scaler) == scaler


@pytest.mark.parametrize("kind", ["max", "log"])
@pytest.mark.parametrize("value", [0.0, 4.0])
def test_a_constant_target_is_predicted_by_the_middle(kind: str, value: float) -> None:
    values = np.full((6, WIDTH), value)
    scaler = TargetScaler.fit(kind, values, ALL)
    assert np.isfinite(scaler.transform(values)).all()
    np.testing.assert_allclose(scaler.inverse(scaler.transform(values)), values, atol=1e-12)


def test_negative_targets_count_as_zero_in_logarithms() -> None:
    values = targets()
    values[0] = -1.0
    scaler = TargetScaler.fit("log", values, ALL)
    np.testing.assert_allclose(scaler.inverse(scaler.transform(values))[0], 0, atol=1e-12)


def test_what_is_refused() -> None:
    for make in (
        lambda: FeatureScaler.fit("logarithm", [np.ones((2, 3))]),
        lambda: TargetScaler.fit("log10", targets(), ALL),
        lambda: WorkloadScaler(("log_of_nothing",), (0.0,), (1.0,)),
    ):
        with pytest.raises(UnknownName):
            make()
    with pytest.raises(BadInput, match="2 features of a node, the scaler expects 3"):
        FeatureScaler.fit("log", [np.ones((2, 3))]).transform(np.ones((2, 2)))
    with pytest.raises(BadInput, match="workload features of shape"):
        WorkloadScaler.fit(np.zeros((3, len(WORKLOAD_FEATURES)))).transform(np.zeros((3, 2)))
    with pytest.raises(BadInput, match="different lengths"):
        FeatureScaler("log", (0.0,), (1.0, 1.0))
    with pytest.raises(BadInput, match="no training value"):
        TargetScaler.fit("log", np.full((3, WIDTH), np.nan), ALL)
