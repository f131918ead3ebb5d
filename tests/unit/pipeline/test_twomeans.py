from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driple.pipeline.bursts.two_means import Split, split_sorted, split_without_tail

numbers = st.one_of(st.floats(-1e6, 1e6), st.integers(-5, 5).map(float))


def two_means(values: Any) -> Split | None:
    return split_sorted(np.sort(values))


def inertia(values: Any, threshold: float) -> float:
    parts = values[values <= threshold], values[values > threshold]
    return float(sum(np.sum((part - np.mean(part)) ** 2) for part in parts))


@given(st.lists(numbers, min_size=2, max_size=60))
def test_no_split_is_better_than_the_one_found(drawn: list[float]) -> None:
    values = np.array(drawn)
    split = two_means(values)
    distinct = np.unique(values)
    if len(distinct) < 2:
        assert split is None
        return
    assert split is not None
    best = min(inertia(values, cut) for cut in distinct[:-1])
    assert inertia(values, split.threshold) == pytest.approx(best, rel=1e-9, abs=1e-6 * float(np.ptp(values)) ** 2)
    assert split.low_count == np.count_nonzero(values <= split.threshold)
    assert split.low == pytest.approx(float(np.mean(values[values <= split.threshold])), rel=1e-6, abs=1e-6)
    assert split.high == pytest.approx(float(np.mean(values[values > split.threshold])), rel=1e-6, abs=1e-6)


def series(which: str) -> Any:
    random = np.random.default_rng(7)
    n = 300
    return {
        "two levels": np.where(random.random(n) < 0.3, 90.0, 5.0) + random.normal(0, 8, n),
        "rare bursts": np.where(random.random(n) < 0.04, 1e8, 2e4) * random.random(n),
        "one level": random.normal(50, 5, n),
        "heavy tail": random.lognormal(0, 1.5, n),
        "percent": random.integers(0, 101, n).astype(float),
        "large offset": 1.7e9 + np.where(random.random(n) < 0.5, 3.0, 0.0) + random.normal(0, 0.2, n),
    }[which]


@pytest.mark.parametrize("which", ["two levels", "rare bursts", "one level", "heavy tail", "percent", "large offset"])
def test_the_clusters_are_those_of_scikit_learn_at_its_best(which: str) -> None:
    cluster = pytest.importorskip("sklearn.cluster")
    values = series(which)
    ours = two_means(values)
    assert ours is not None
    # Its ordinary start misses the best clusters of a heavy tail however often it tries; started at ours, it must stay.
    column, centre = (values - values.mean()).reshape(-1, 1), values.mean()
    starts = [("k-means++", 20), (np.array([[ours.low - centre], [ours.high - centre]]), 1)]
    fits = [
        cluster.KMeans(n_clusters=2, init=init, n_init=tries, random_state=0, tol=0.0, max_iter=1000).fit(column)
        for init, tries in starts
    ]
    theirs = min(fits, key=lambda fit: float(fit.inertia_))
    assert inertia(column[:, 0], ours.threshold - centre) <= theirs.inertia_ * (1 + 1e-9)
    high = theirs.labels_ == int(np.argmax(theirs.cluster_centers_))
    assert (high == (values > ours.threshold)).all()


def test_it_does_not_depend_on_order_and_is_repeatable() -> None:
    values = series("heavy tail")
    assert two_means(values) == two_means(values[::-1]) == two_means(values)


@pytest.mark.parametrize("values", [[], [1.0], [3.0, 3.0, 3.0]])
def test_without_two_different_values_there_is_no_split(values: list[float]) -> None:
    assert two_means(np.array(values)) is None
    assert split_without_tail(np.array(values)) is None


def test_neighbouring_floats_are_split_between_them() -> None:
    low, high = 1.0, float(np.nextafter(1.0, 2.0))
    split = two_means(np.array([high, low, low]))
    assert split is not None
    assert low <= split.threshold < high
    assert (split.low_count, split.high_count) == (2, 1)


def test_a_tail_is_cut_until_the_threshold_is_below_what_is_typical() -> None:
    values = np.sort(np.r_[np.zeros(800), 40.0 * np.random.default_rng(2).lognormal(0.0, 0.8, 200)])
    plain, cut = two_means(values), split_without_tail(values)
    assert plain is not None and cut is not None
    assert 0.0 < cut.threshold < 0.8 * plain.threshold
    assert cut.high_count > plain.high_count
