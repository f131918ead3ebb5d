"""The plain model: the best of several for each target, judged on families that it has not seen."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from numpy.typing import NDArray

from driple.contracts.errors import BadInput
from driple.contracts.json_values import from_plain, to_plain
from driple.contracts.metrics import COLUMNS
from driple.inspector.base_model.stacked_regressor import KINDS, BaseModel, SourceModel, folds_of
from driple.inspector.data.array_types import FloatArray
from driple.inspector.data.scaling import TargetScaler, WorkloadScaler
from driple.inspector.data.workload_features import WORKLOAD_FEATURES

SUM, POWER, FLAT = 0, 1, 2
"""Targets that are best told by the law, by the ridge, and by anything."""


def rows(count: int = 80, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    random = np.random.default_rng(seed)
    facts = np.full((count, len(WORKLOAD_FEATURES)), np.nan)
    for name in ("log_megaflops", "log_kilobytes"):
        facts[:, WORKLOAD_FEATURES.index(name)] = np.log1p(10 ** random.uniform(0, 4, count))
    facts[:, WORKLOAD_FEATURES.index("is_async")] = 0.0
    flops, moved = (np.expm1(facts[:, WORKLOAD_FEATURES.index(name)]) for name in ("log_megaflops", "log_kilobytes"))
    values = np.full((count, len(COLUMNS)), np.nan)
    values[:, SUM] = flops + 3 * moved
    values[:, POWER] = np.sqrt(moved) / flops
    values[:, FLAT] = 90 * np.exp(random.normal(0, 0.05, count))
    return facts, values


def fitted() -> tuple[BaseModel, FloatArray, WorkloadScaler, TargetScaler]:
    facts, values = rows()
    scale = WorkloadScaler.fit(facts)
    targets = TargetScaler.fit("log", values, ~np.isnan(values).all(axis=0))
    return *BaseModel.fit(facts, values, np.arange(len(facts)) % 8, scale, targets), scale, targets


def test_each_target_gets_the_model_that_suits_it() -> None:
    plain, held, scale, targets = fitted()
    law, ridge = (dict(zip(KINDS, plain.shares[place] or (), strict=True)) for place in (SUM, POWER))
    assert law["law"] == max(law.values())
    assert ridge["law"] < 0.2
    assert set(plain.shares[3:]) == {None}
    facts, values = rows(seed=1)
    said = targets.inverse(plain.predict(facts, scale, targets))
    assert np.median(np.abs(said[:, SUM] / values[:, SUM] - 1)) < 0.04
    assert np.median(np.abs(said[:, POWER] / values[:, POWER] - 1)) < 0.2
    assert np.median(np.abs(said[:, FLAT] / values[:, FLAT] - 1)) < 0.06
    assert (held[:, 3:] == 0).all()


def test_the_mean_is_that_of_the_scale_of_targets() -> None:
    facts, values = rows()
    values[:, FLAT] = np.random.default_rng(3).permutation(values[:, FLAT])
    scale = WorkloadScaler.fit(facts)
    targets = TargetScaler.fit("max", values, ~np.isnan(values).all(axis=0))
    plain, _ = BaseModel.fit(facts, values, np.arange(len(facts)) % 8, scale, targets)
    mean = float(targets.transform(values)[:, FLAT].mean())
    assert plain.means[FLAT] == pytest.approx(mean)
    nothing = (0.0,) * len(KINDS)
    kept = dataclasses.replace(plain, shares=(*plain.shares[:2], nothing, *plain.shares[3:]))
    said = targets.inverse(kept.predict(facts, scale, targets))
    assert said[:, FLAT] == pytest.approx(np.full(len(facts), values[:, FLAT].mean()))


def test_it_travels_as_plain_values() -> None:
    plain, _, scale, targets = fitted()
    again = from_plain(BaseModel, to_plain(plain))
    facts, _ = rows(seed=1)
    assert np.array_equal(again.predict(facts, scale, targets), plain.predict(facts, scale, targets))
    with pytest.raises(BadInput, match="a target without a ridge"):
        dataclasses.replace(plain, ridges=(None, *plain.ridges[1:]))
    with pytest.raises(BadInput, match="together at most 1"):
        dataclasses.replace(plain, shares=((0.5, 0.6, 0.0, 0.0), *plain.shares[1:]))
    with pytest.raises(BadInput, match="a lowest value above the highest"):
        dataclasses.replace(plain, lowest=(plain.highest[0] + 1, *plain.lowest[1:]))
    with pytest.raises(BadInput, match="a reach from 0 to 1"):
        dataclasses.replace(plain, reach=(1.5, *plain.reach[1:]))
    with pytest.raises(BadInput, match="4 shares of 0 or more"):
        dataclasses.replace(plain, shares=((1.0,), *plain.shares[1:]))
    with pytest.raises(BadInput, match="different numbers of targets"):
        dataclasses.replace(plain, means=plain.means[1:])


def test_only_the_law_of_durations_goes_beyond_what_was_seen() -> None:
    plain, _, scale, targets = fitted()
    facts, values = rows()
    far = facts.copy()
    for name in ("log_megaflops", "log_kilobytes"):
        far[:, WORKLOAD_FEATURES.index(name)] += np.log(100)
    said = targets.inverse(plain.predict(far, scale, targets))
    assert said[:, SUM].max() > 5 * values[:, SUM].max()  # as far as the scale of targets lets it
    assert said[:, POWER].max() < 3 * values[:, POWER].max()
    assert said[:, FLAT].max() < 1.1 * values[:, FLAT].max()


def test_ridge_and_kernel_follow_the_law_beyond_what_was_seen_as_far_as_it_was_right() -> None:
    plain, _, scale, targets = fitted()
    assert plain.reach[SUM] > 0.95
    assert plain.reach[FLAT] < 0.5
    facts, values = rows()
    largest = int(values[:, SUM].argmax())
    far = facts[[largest]]
    for name in ("log_megaflops", "log_kilobytes"):
        far[:, WORKLOAD_FEATURES.index(name)] += np.log(8)
    for kind in ("law", "ridge", "kernel"):
        alone = tuple(float(kind == each) for each in KINDS)
        said = dataclasses.replace(plain, shares=(alone, *plain.shares[1:])).predict(far, scale, targets)
        assert targets.inverse(said)[0, SUM] == pytest.approx(8 * values[largest, SUM], rel=0.6)
        behind = dataclasses.replace(plain, shares=(alone, *plain.shares[1:]), reach=(0.0,) * len(COLUMNS))
        if kind != "law":
            assert targets.inverse(behind.predict(far, scale, targets))[0, SUM] < 3.5 * values[largest, SUM]


def test_for_a_ridge_a_fact_is_only_so_far_out() -> None:
    plain, _, scale, targets = fitted()
    facts, _ = rows()
    shares = tuple(tuple(float(kind == "ridge") for kind in KINDS) if place == POWER else None for place in range(12))
    ridge = dataclasses.replace(plain, shares=shares, reach=(0.0,) * len(COLUMNS))
    said = []
    for added in (50.0, 100.0):  # one makes it larger, the other smaller: together they stay in the range of the target
        far = facts.copy()
        for name in ("log_megaflops", "log_kilobytes"):
            far[:, WORKLOAD_FEATURES.index(name)] += added
        said.append(ridge.predict(far, scale, targets)[:, POWER])
    assert np.array_equal(*said)
    assert (said[0] > ridge.lowest[POWER]).all()
    assert (said[0] < ridge.highest[POWER]).all()


def test_families_stay_together() -> None:
    folds = folds_of(["vgg", "resnet", "vgg", "nmt"], 4)
    assert folds[0] == folds[2]
    assert len(set(folds.tolist())) == 3
    assert folds_of([None] * 25, 25).tolist() == [row % 10 for row in range(25)]
    assert len(set(folds_of(["one"] * 25, 25).tolist())) == 10


def test_few_rows_of_a_setting_go_by_what_another_one_taught() -> None:
    facts, values = rows(200)
    scale = WorkloadScaler.fit(facts)
    targets = TargetScaler.fit("log", values, ~np.isnan(values).all(axis=0))
    elsewhere = SourceModel(BaseModel.fit(facts, values, np.arange(200) % 8, scale, targets)[0], scale, targets)
    few, here = rows(10, seed=1)
    here = 1.7 * here * np.exp(np.random.default_rng(2).normal(0, 0.02, here.shape))
    own = TargetScaler.fit("log", here, ~np.isnan(here).all(axis=0))
    folds: NDArray[np.int64] = np.arange(10) % 5
    alone, _ = BaseModel.fit(few, here, folds, scale, own)
    helped, _ = BaseModel.fit(few, here, folds, scale, own, elsewhere)
    assert (helped.shares[POWER] or ())[KINDS.index("moved")] > 0.5
    assert alone.elsewhere is None
    more, truth = rows(seed=3)
    errors = [
        np.median(np.abs(own.inverse(plain.predict(more, scale, own))[:, POWER] / truth[:, POWER] / 1.7 - 1))
        for plain in (alone, helped)
    ]
    assert errors[1] < 0.25 < errors[0]
    again = from_plain(BaseModel, to_plain(helped))
    assert again == helped
    np.testing.assert_array_equal(again.predict(more, scale, own), helped.predict(more, scale, own))


def test_moved_needs_a_place_to_come_from() -> None:
    plain, *_ = fitted()
    with pytest.raises(BadInput, match="no source model is stored"):
        dataclasses.replace(plain, shares=((0.0, 0.0, 0.0, 1.0), *plain.shares[1:]))


def test_what_a_source_learned_from_its_own_source_does_not_count_either() -> None:
    facts, values = rows(200)
    scale = WorkloadScaler.fit(facts)
    targets = TargetScaler.fit("log", values, ~np.isnan(values).all(axis=0))
    first, _ = BaseModel.fit(facts, values, np.arange(200) % 8, scale, targets)
    few, here = rows(10, seed=1)
    second, _ = BaseModel.fit(few, here, np.arange(10) % 5, scale, targets, SourceModel(first, scale, targets))
    assert (second.shares[POWER] or ())[KINDS.index("moved")] > 0.5
    told = dataclasses.replace(first, apart={"a": (7.0,) * len(COLUMNS)})
    chained = dataclasses.replace(second, elsewhere=SourceModel(told, scale, targets))
    asked, _ = rows(2, seed=3)
    usual, apart = (SourceModel(chained, scale, targets).predict(asked, jobs)[:, POWER] for jobs in ((), ["a", "b"]))
    assert apart[0] > usual[0] + 1
    assert apart[1] == usual[1]


def test_of_a_job_that_was_learned_from_elsewhere_counts_what_is_said_without_it() -> None:
    plain, _, scale, targets = fitted()
    facts, _ = rows(3, seed=1)
    known = SourceModel(dataclasses.replace(plain, apart={"b": (7.0,) * len(COLUMNS)}), scale, targets)
    found, usual = known.predict(facts, ["a", "b", None]), known.predict(facts)
    with pytest.raises(BadInput, match="different numbers of targets"):
        dataclasses.replace(plain, apart={"b": (7.0,)})
    assert (found[1] == 7.0).all() and (usual[1] != 7.0).all()
    np.testing.assert_array_equal(np.delete(found, 1, axis=0), np.delete(usual, 1, axis=0))
