"""Baselines: they learn what can be learned from the facts, and never look at what they are judged on."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import inspector_work as work
import numpy as np
import pytest

from driple.contracts.errors import UnknownName
from driple.contracts.metrics import COLUMNS
from driple.inspector.data.examples import Example, Examples
from driple.inspector.evaluation import ridge_baseline
from driple.inspector.evaluation.baselines import BASELINES, MEAN, RIDGE, TREES, fit
from driple.inspector.evaluation.scores import scores
from driple.inspector.evaluation.target_baseline import Known

KEPT = ("gpu_burst_s", "gpu_idle_s", "net_tx_burst_s")
PLACES = [COLUMNS.index(name) for name in KEPT]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> tuple[Examples, Examples, Examples]:
    dataset = work.zoo(batches=(8, 16, 32, 64), depths=(1, 3, 5))
    for row in dataset.rows:  # three targets do, and trees take their time
        row.update({name: None for name in COLUMNS if name not in KEPT})
    found = work.examples(tmp_path_factory.mktemp("datasets"), dataset)
    return (
        found.side("architecture", "train"),
        found.side("architecture", "val"),
        found.side("architecture", "test"),
    )


Sides = tuple[Examples, Examples, Examples]


def with_targets(examples: Examples, **columns: float) -> Examples:
    """The same examples with some targets set to one value."""

    def changed(item: Example) -> Example:
        targets = item.targets.copy()
        for name, value in columns.items():
            targets[COLUMNS.index(name)] = value
        return dataclasses.replace(item, targets=targets)

    return dataclasses.replace(examples, items=tuple(changed(item) for item in examples.items))


def test_the_mean_is_the_mean_of_the_training_rows(sides: Sides) -> None:
    train, val, test = sides
    predicted = fit(MEAN, train, val)(test)
    assert predicted.shape == (len(test), len(COLUMNS))
    np.testing.assert_allclose(predicted[0, PLACES], train.targets()[:, PLACES].mean(axis=0))
    assert (predicted[:, PLACES] == predicted[0, PLACES]).all()


@pytest.mark.parametrize("name", BASELINES)
def test_targets_that_nobody_measured_are_null(sides: Sides, name: str) -> None:
    train, val, test = sides
    predicted = fit(name, train, val)(test)
    assert np.isnan(np.delete(predicted, PLACES, axis=1)).all()
    assert np.isfinite(predicted[:, PLACES]).all()
    assert (predicted[:, PLACES] >= 0).all()


@pytest.mark.parametrize(("name", "most"), [(RIDGE, 0.2), (TREES, 0.6)])
def test_what_follows_from_the_facts_is_learned(sides: Sides, name: str, most: float) -> None:
    train, val, test = sides
    mean = scores(test.targets(), fit(MEAN, train)(test)).targets["gpu_burst_s"].nrmse
    for chosen_by in (val, None):
        found = scores(test.targets(), fit(name, train, chosen_by)(test)).targets["gpu_burst_s"].nrmse
        assert mean is not None
        assert found is not None
        assert found < most * mean


@pytest.mark.parametrize("name", BASELINES)
def test_the_same_seed_gives_the_same(sides: Sides, name: str) -> None:
    train, val, test = sides
    first, second = (fit(name, train, val, seed=3)(test) for _ in range(2))
    np.testing.assert_array_equal(first, second)


def test_only_trees_depend_on_the_seed(sides: Sides) -> None:
    train, val, test = sides
    for name in BASELINES:
        same = np.array_equal(fit(name, train, val, 0)(test), fit(name, train, val, 1)(test), equal_nan=True)
        assert same == (name != TREES)


@pytest.mark.parametrize("name", BASELINES)
def test_a_prediction_does_not_depend_on_what_is_asked_beside_it_nor_on_the_truth(sides: Sides, name: str) -> None:
    train, val, test = sides
    predict = fit(name, train, val)
    alone = np.concatenate([predict(dataclasses.replace(test, items=(item,))) for item in test.items])
    np.testing.assert_allclose(alone, predict(test), rtol=1e-9)
    np.testing.assert_array_equal(predict(with_targets(test, gpu_burst_s=1e9)), predict(test))
    assert predict(dataclasses.replace(test, items=())).shape == (0, len(COLUMNS))


@pytest.mark.parametrize("name", [name for name in BASELINES if name != "mean"])
def test_with_its_choice_made_it_learns_from_the_validation_rows_too(sides: Sides, name: str) -> None:
    train, val, test = sides
    higher = with_targets(val, gpu_burst_s=1e3)
    assert fit(name, train, higher)(test)[:, 0].mean() > 1.05 * fit(name, train, val)(test)[:, 0].mean()


@pytest.mark.parametrize("name", BASELINES)
def test_a_few_nulls_and_a_constant_do_no_harm(sides: Sides, name: str) -> None:
    train, val, test = sides
    first, rest = train.items[:4], train.items[4:]
    holes = with_targets(dataclasses.replace(train, items=first), gpu_burst_s=float("nan"))
    spoiled = with_targets(dataclasses.replace(train, items=(*holes.items, *rest)), gpu_idle_s=2.0)
    unknown = with_targets(val, gpu_burst_s=float("nan"), gpu_idle_s=2.0)
    predicted = fit(name, spoiled, unknown)(test)
    assert np.isfinite(predicted[:, 0]).all()
    np.testing.assert_allclose(predicted[:, 1], 2.0, rtol=1e-6)


@pytest.mark.parametrize("name", BASELINES)
def test_published_rows(tmp_path: Path, name: str) -> None:
    dataset = work.published(40)
    for row in dataset.rows:
        row.update({name: None for name in COLUMNS if name not in KEPT})
    found = work.examples(tmp_path, dataset)
    train, val, test = (found.side("random", side) for side in ("train", "val", "test"))
    predicted = fit(name, train, val)(test)
    assert np.isfinite(predicted[:, PLACES]).all()


def test_ridge_is_ridge() -> None:
    from sklearn.linear_model import Ridge

    numbers = np.random.default_rng(0)
    facts, values, asked = numbers.random((12, 30)), numbers.random(12), numbers.random((5, 30))
    found = ridge_baseline._all_strengths(facts, values, asked)
    for strength, row in zip(ridge_baseline._STRENGTHS, found, strict=True):
        np.testing.assert_allclose(row, Ridge(alpha=strength).fit(facts, values).predict(asked), rtol=1e-6)


def test_families_are_left_out_whole_where_new_ones_are_asked_for() -> None:
    def known(*families: str) -> Known:
        return Known(np.zeros((len(families), 1)), np.zeros(len(families)), np.array(families, dtype=object))

    train = known("vgg", "vgg", "resnet")
    assert ridge_baseline._parts(train, known("nmt")).tolist() == ["vgg", "vgg", "resnet"]
    assert ridge_baseline._parts(train, known("nmt", "vgg")).tolist() == [0, 1, 2]
    assert ridge_baseline._parts(train, None).tolist() == [0, 1, 2]
    assert ridge_baseline._parts(known("vgg", "vgg"), known("nmt")).tolist() == [0, 1]


def test_a_name_that_is_none(sides: Sides) -> None:
    with pytest.raises(UnknownName, match="forest"):
        fit("forest", sides[0])
