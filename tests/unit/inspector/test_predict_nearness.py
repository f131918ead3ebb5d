"""How far a workload lies from the training rows."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import inspector_work as work
import numpy as np
import pytest

from driple.contracts.errors import BadInput
from driple.contracts.formats.inspector import ROWS_FILE
from driple.inspector.data.examples import Example, Examples, unmeasured
from driple.inspector.data.scaling import WorkloadScaler
from driple.inspector.data.workload_features import RUNTIME_FEATURES, WORKLOAD_FEATURES, workload_feature_table
from driple.inspector.model.training_rows import Row, TrainingRows, load_rows, save_rows, workload_label
from driple.inspector.predict.novelty import EDGE, FAR, LIKE, TrainingRegion


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return work.examples(tmp_path_factory.mktemp("datasets"))


@pytest.fixture(scope="module")
def train(examples: Examples) -> Examples:
    return examples.side("architecture", "train")


@pytest.fixture(scope="module")
def neighbours(examples: Examples, train: Examples) -> TrainingRegion:
    return TrainingRegion(
        TrainingRows.of(examples, "architecture"), WorkloadScaler.fit(workload_feature_table(train.items))
    )


def changed(item: Example, **workload: Any) -> Example:
    return dataclasses.replace(item, workload={**item.workload, **workload})


def by_hand(*points: tuple[float | None, float | None], families: tuple[str | None, ...]) -> TrainingRegion:
    """Rows with two facts, batch size and ops, on a scale that leaves them as they are."""
    names = ("log_batch_size", "log_ops")
    rows = tuple(Row(f"m{n} b1", family, point) for n, (point, family) in enumerate(zip(points, families, strict=True)))
    return TrainingRegion(
        TrainingRows("0", "random", "worker", names, rows), WorkloadScaler(names, (0.0, 0.0), (1.0, 1.0))
    )


def test_a_training_row_is_where_it_is(neighbours: TrainingRegion, train: Examples) -> None:
    for item in train.items[:5]:
        found = neighbours.novelty_of(item)
        assert found.verdict == LIKE
        assert found.distance == pytest.approx(0.0, abs=1e-4)
        assert found.nearest[0][0] == workload_label(item.workload)
        assert len({label.partition(" ")[0] for label, _ in found.nearest}) == len(found.nearest) == 3
        assert found.outside == ()


def test_limits_by_hand() -> None:
    """Two families on a line, at 0, 1 and at 3, 5: rows are 3, 2, 2 and 4 from the other family, over root 2."""
    found = by_hand((0.0, 1.0), (1.0, 1.0), (3.0, 1.0), (5.0, 1.0), families=("a", "a", "b", "b"))
    apart = np.array([3.0, 2.0, 2.0, 4.0]) / math.sqrt(2)
    assert found.like_below == pytest.approx(np.quantile(apart, 0.25))
    assert found.edge_below == pytest.approx(np.quantile(apart, 0.9))


def test_without_families_rows_are_compared_one_by_one() -> None:
    found = by_hand((0.0, 1.0), (1.0, 1.0), (3.0, 1.0), families=(None, None, None))
    apart = np.array([1.0, 1.0, 2.0]) / math.sqrt(2)
    assert (found.like_below, found.edge_below) == pytest.approx(tuple(np.quantile(apart, (0.75, 0.95))))
    assert by_hand((0.0, 1.0), families=(None,)).edge_below == 0.0


def test_what_is_unknown_has_no_distance() -> None:
    found = by_hand((0.0, None), (4.0, None), families=("a", "b"))
    assert found.like_below == pytest.approx(4.0)  # over the one fact that both know
    alone = by_hand((None, 1.0), (None, 1.0), families=("a", "b"))
    graph = work.chain(1)
    assert alone.novelty_of(unmeasured(graph, {})).distance == pytest.approx(abs(math.log1p(len(graph.ops)) - 1.0))


def test_farther_is_worse(neighbours: TrainingRegion, train: Examples) -> None:
    item = train.items[0]
    distances = [neighbours.novelty_of(changed(item, batch_size=size)).distance for size in (8, 64, 1024, 10**6)]
    assert distances == sorted(distances) and len(set(distances)) == 4
    assert neighbours.novelty_of(changed(item, batch_size=10**6)).verdict == FAR
    huge = unmeasured(work.chain(60, 1e6), item.workload)
    assert neighbours.novelty_of(huge).verdict == FAR


def test_facts_beyond_training_are_named(neighbours: TrainingRegion, train: Examples) -> None:
    found = neighbours.novelty_of(changed(train.items[0], batch_size=4096))
    assert "batch size 4096 (training: 8 to 32)" in map(str, found.outside)
    (one,) = [one for one in found.outside if one.fact == "log_batch_size"]
    deviation = np.log([8, 16, 32]).std()
    assert one.deviations == pytest.approx(math.log(4096 / 32) / deviation, rel=1e-4)


@pytest.mark.parametrize(("fact", "verdict"), [("log_matmul_ops", LIKE), ("log_levels", FAR)])
def test_a_total_far_outside_is_enough_and_a_class_of_ops_is_not(fact: str, verdict: str) -> None:
    """Both four deviations outside, and both near: families are ten deviations apart in another fact."""
    example = unmeasured(work.chain(1), {})
    value = float(workload_feature_table([example])[0, WORKLOAD_FEATURES.index(fact)])
    ops = float(workload_feature_table([example])[0, WORKLOAD_FEATURES.index("log_ops")])
    names = ("log_ops", fact)
    rows = (Row("a b1", "a", (ops, 0.0)), Row("b b1", "b", (ops - 10.0, 0.0)))
    scale = WorkloadScaler(names, (0.0, 0.0), (1.0, value / 4))
    found = TrainingRegion(TrainingRows("0", "random", "worker", names, rows), scale).novelty_of(example)
    assert found.distance == pytest.approx(4.0 / math.sqrt(2))
    (outside,) = found.outside
    assert outside.fact == fact and outside.deviations == pytest.approx(4.0)
    assert found.verdict == verdict


def test_what_never_varied_in_training_is_seen_too(neighbours: TrainingRegion, train: Examples) -> None:
    """The inspector does not look at it, so its distance is none: but nothing is known of it either."""
    found = neighbours.novelty_of(changed(train.items[0], update="async"))
    assert found.verdict == EDGE
    (one,) = found.outside
    assert one.deviations is None and str(one) == "async yes (training: no)"


def test_an_unseen_framework_is_far_whatever_the_distance(examples: Examples, train: Examples) -> None:
    rows = TrainingRows.of(examples, "architecture")
    assert rows.frameworks == ("tensorflow",)
    scale = WorkloadScaler.fit(workload_feature_table(train.items))
    for frameworks, seen in ((("tensorflow",), False), (("tensorflow", "torch"), True)):
        region = TrainingRegion(dataclasses.replace(rows, frameworks=frameworks), scale)
        found = region.novelty_of(train.items[0], "torch")
        assert found.distance == pytest.approx(0.0, abs=1e-4)
        assert (found.verdict, found.framework_seen) == ((LIKE, True) if seen else (FAR, False))
        assert (found.framework_line is None) == seen
        assert region.novelty_of(train.items[0]).verdict == LIKE
        other = region.novelty_of(train.items[0], "onnx").framework_line or ""
        assert other.startswith("its graph is of ONNX, and no training graph is (all are of TensorFlow")


def test_the_frameworks_of_rows_are_stored(examples: Examples, tmp_path: Path) -> None:
    items = tuple(changed(item, framework="torch") if n % 2 else item for n, item in enumerate(examples.items))
    rows = TrainingRows.of(dataclasses.replace(examples, items=items), "architecture")
    assert rows.frameworks == ("tensorflow", "torch")
    save_rows(tmp_path, rows)
    training = {"dataset_sha256": examples.sha256, "split": "architecture", "role": "worker"}
    assert load_rows(tmp_path, **training) == rows
    # Earlier releases did not write it, and had graphs of TensorFlow only.
    value = json.loads((tmp_path / ROWS_FILE).read_text())
    del value["frameworks"]
    (tmp_path / ROWS_FILE).write_text(json.dumps(value))
    loaded = load_rows(tmp_path, **training)
    assert loaded is not None and loaded.frameworks == ("tensorflow",)


def test_rows_go_to_a_file_and_back(examples: Examples, tmp_path: Path) -> None:
    rows = TrainingRows.of(examples, "architecture")
    save_rows(tmp_path, rows)
    training = {"dataset_sha256": examples.sha256, "split": "architecture", "role": "worker"}
    assert load_rows(tmp_path, **training) == rows
    assert len((tmp_path / ROWS_FILE).read_text().splitlines()) == len(rows.rows) + 2
    expected = workload_feature_table(examples.side("architecture", "train").items)
    np.testing.assert_allclose(rows.table(), expected, rtol=1e-5)
    for name in training:
        assert load_rows(tmp_path, **{**training, name: "other"}) is None
    assert load_rows(tmp_path / "nowhere", **training) is None


def test_files_that_are_none(examples: Examples, tmp_path: Path) -> None:
    training = {"dataset_sha256": examples.sha256, "split": "architecture", "role": "worker"}
    save_rows(tmp_path, TrainingRows.of(examples, "architecture"))
    path = tmp_path / ROWS_FILE
    value = json.loads(path.read_text())
    path.write_text(json.dumps({**value, "schema_version": 2}))
    assert load_rows(tmp_path, **training) is None
    for broken, message in (
        ({**value, "schema": "dataset"}, "not the training rows"),
        ({**value, "rows": []}, "no training rows"),
        ({**value, "facts": value["facts"][1:]}, "another number of features"),
    ):
        path.write_text(json.dumps(broken))
        with pytest.raises(BadInput, match=message):
            load_rows(tmp_path, **training)


def test_a_fact_of_another_release_is_not_looked_at() -> None:
    rows = TrainingRows("0", "random", "worker", ("of_tomorrow", "log_ops"), (Row("m b1", None, (7.0, 2.0)),))
    table = rows.table()
    assert table[0, WORKLOAD_FEATURES.index("log_ops")] == 2.0
    others = {name: table[0, place] for place, name in enumerate(WORKLOAD_FEATURES) if name != "log_ops"}
    assert {name for name, value in others.items() if value == 0.0} == set(RUNTIME_FEATURES)
    assert {name for name, value in others.items() if math.isnan(value)} == set(others) - set(RUNTIME_FEATURES)


def test_labels_leave_out_what_is_unknown(tmp_path: Path) -> None:
    assert workload_label({}) == "model"
    assert workload_label({"model": "a/b.py:f", "batch_size": 4, "width": 0.5}) == "b.py:f b4 x0.5"
    ring = {"model": "ncf", "update": "sync", "strategy": "allreduce", "optimiser": "adam"}
    assert workload_label(ring) == "ncf adam allreduce"
    star = {**ring, "framework": "torch", "topology": "star"}
    assert workload_label(star) == "ncf adam allreduce torch star"
    assert workload_label({**ring, "framework": "tensorflow", "topology": "ring"}) == "ncf adam allreduce"
    published = work.examples(tmp_path, work.published())
    rows = TrainingRows.of(published, "random").rows
    assert rows[0].label.startswith("published-") and rows[0].family is None
