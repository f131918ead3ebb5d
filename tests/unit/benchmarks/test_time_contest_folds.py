"""Folds of the contest, and how it goes on where it was stopped."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from time_contest.contest import predict_folds
from time_contest.contestant import Predict, Reused, Rows
from time_contest.features import graph_totals
from time_contest.folds import ANCHORS, DRAWS, PARTS, Fold, chosen_anchors, folds_of
from time_contest.kept_predictions import KeptPredictions, hash_of_datasets

from driple.inspector.time.time_rows import read_time_rows, step_times

MakeRow = Callable[..., Any]
DATASETS = Path(__file__).parents[3] / "datasets"


@pytest.fixture(scope="module")
def measured() -> Rows:
    return read_time_rows(DATASETS)


@pytest.fixture(scope="module")
def folds(measured: Rows) -> list[Fold]:
    return folds_of(measured, tuple(PARTS))


def of_part(folds: list[Fold], part: str) -> list[Fold]:
    return [fold for fold in folds if fold.part == part]


def test_no_row_is_learned_from_and_tested(folds: list[Fold], measured: Rows) -> None:
    for fold in folds:
        assert fold.test and not set(fold.train) & set(fold.test)
        assert set(fold.train) | set(fold.test) == set(range(len(measured)))


@pytest.mark.parametrize(("part", "key"), [("family", "family"), ("model", "model"), ("architecture", "family")])
def test_no_family_or_model_is_on_both_sides(folds: list[Fold], measured: Rows, part: str, key: str) -> None:
    for fold in of_part(folds, part):
        tested = {getattr(measured[number], key) for number in fold.test}
        assert not tested & {getattr(measured[number], key) for number in fold.train}


@pytest.mark.parametrize("part", ["family", "model"])
def test_every_row_is_tested_once(folds: list[Fold], measured: Rows, part: str) -> None:
    tested = [number for fold in of_part(folds, part) for number in fold.test]
    assert sorted(tested) == list(range(len(measured)))


def test_a_setting_that_is_left_out_has_its_anchors_only(folds: list[Fold], measured: Rows) -> None:
    for count in ANCHORS:
        found = of_part(folds, f"setting {count}")
        assert found
        for fold in found:
            (place,) = {(str(measured[number].setting), measured[number].machine) for number in fold.test}
            train = [measured[number] for number in fold.train]
            own = sum((str(row.setting), row.machine) == place for row in measured)
            assert sum((str(row.setting), row.machine) == place for row in train) == min(count, own // 2)
            assert any(row.machine == place[1] and str(row.setting) != place[0] for row in train)
            assert fold.runs == fold.train
    draws = of_part(folds, "setting 10")[:DRAWS]
    assert len({fold.train for fold in draws}) == DRAWS


def test_a_new_machine_has_one_anchor_for_each_of_its_settings(folds: list[Fold], measured: Rows) -> None:
    for part in ("machine 0", "machine 1"):
        found = of_part(folds, part)
        assert len(found) == len({row.machine for row in measured})
        for fold in found:
            own = [measured[number] for number in fold.train if measured[number].machine == fold.name]
            sites = {measured[number].site for number in fold.test}
            assert sorted(row.site for row in own) == (sorted(sites) if part == "machine 1" else [])
            assert fold.runs == fold.train


def test_the_anchor_is_the_workload_that_other_machines_name(make_row: MakeRow) -> None:
    by_flops = sorted(range(1, 5), key=lambda graph: float(graph_totals([make_row(graph=graph)])[0, 0]))
    traffic = dict(zip(by_flops, (1e3, 1e3, 1e3, 1e9), strict=True))  # what computes most waits for the link
    known = [make_row(graph=graph, traffic=traffic[graph], width=graph) for graph in by_flops]
    own = [make_row(graph=graph, width=graph, machine="two") for graph in by_flops]
    assert chosen_anchors([*known, *own], [4, 5, 6, 7]) == [6]


def test_where_that_did_not_run_the_anchor_computes_most_for_its_communication(make_row: MakeRow) -> None:
    known = [make_row(graph=1, width=0.5)]
    own = [make_row(graph=1, traffic=size, machine="two", step_s=step) for size, step in ((1e6, 1), (1e4, 9), (1e7, 2))]
    assert chosen_anchors([*known, *own], [1, 2, 3]) == [2]


class Counting:
    """The mean, and how often it was learned."""

    def __init__(self) -> None:
        self.learned = 0

    def learn(self, train: Rows, seed: int) -> Predict:
        self.learned += 1
        mean = float(step_times(train).mean())
        return lambda rows: step_times(rows) * 0 + mean


def test_what_is_kept_is_not_predicted_again(make_row: MakeRow, tmp_path: Path) -> None:
    rows = [make_row(step_s=step, family=family) for step, family in ((1.0, "a"), (2.0, "b"), (4.0, "b"))]
    counting = Counting()
    code = tmp_path / "code.py"
    code.write_text("one")
    every = {"counting": Reused(title="-", source="-", learn=counting.learn, code=(code,))}
    folds = folds_of(rows, ["family"])
    kept = KeptPredictions(tmp_path / "kept", "a" * 64)
    first = predict_folds(lambda fold: rows, every, folds, kept)
    assert [one.seconds for one in first["counting"]] == [[3.0], [1.0, 1.0]]
    assert counting.learned == 2
    assert predict_folds(lambda fold: rows, every, folds, kept) == first
    assert counting.learned == 2
    predict_folds(lambda fold: rows, every, folds, KeptPredictions(tmp_path / "kept", "b" * 64))
    assert counting.learned == 4
    code.write_text("another")
    predict_folds(lambda fold: rows, every, folds, kept)
    assert counting.learned == 6
    predict_folds(lambda fold: rows, every, folds, kept, fresh=True)
    assert counting.learned == 8


def test_the_hash_of_datasets_changes_with_a_file(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.parquet").write_bytes(name.encode())
    before = hash_of_datasets(tmp_path, ["one", "two"])
    assert hash_of_datasets(tmp_path, ["one"]) != before
    (tmp_path / "two.parquet").write_bytes(b"other")
    assert hash_of_datasets(tmp_path, ["one", "two"]) != before
