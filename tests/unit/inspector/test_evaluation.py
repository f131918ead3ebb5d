"""Errors of inspector and baselines, always in one table."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
from pathlib import Path

import inspector_work
import numpy as np
import pytest
import training_work as work

from driple.contracts.errors import BadInput
from driple.contracts.metrics import COLUMNS
from driple.inspector.data.examples import Examples
from driple.inspector.evaluation import error_table as evaluation
from driple.inspector.evaluation.baselines import BASELINES
from driple.inspector.evaluation.calibration import coverage, factors
from driple.inspector.evaluation.error_table import INSPECTOR, Evaluation, evaluate
from driple.inspector.evaluation.report import to_csv, to_json, to_markdown, to_text, write_reports
from driple.inspector.evaluation.scores import scores
from driple.inspector.model.inspector_model import InspectorModel

TABLE = ("inspector", *BASELINES)


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return work.rows(tmp_path_factory.mktemp("datasets"))


@pytest.fixture(scope="module")
def inspector(examples: Examples) -> InspectorModel:
    return work.trained(examples, work.small(ensemble=2)).inspector


@pytest.fixture
def only_mean(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it does not matter which baselines there are: trees take seconds."""
    monkeypatch.setattr(evaluation, "BASELINES", ("mean",))


@pytest.fixture(scope="module")
def found(inspector: InspectorModel, examples: Examples) -> Evaluation:
    return evaluate(inspector, examples)


def test_all_predictors_are_scored_on_the_same_rows(
    found: Evaluation, inspector: InspectorModel, examples: Examples
) -> None:
    assert found.predictors == TABLE
    test = examples.side("architecture", "test")
    wanted = scores(test.targets(), inspector.predict(test)[0])
    assert found.scores["test"][INSPECTOR] == wanted
    counts = {(row["side"], row["target"]): set() for row in found.rows()}  # type: dict[tuple[str, str], set[int]]
    for row in found.rows():
        counts[row["side"], row["target"]].add(row["rows"])
    assert all(len(of_row) == 1 for of_row in counts.values())
    assert found.counts == {"train": 27, "val": 9, "test": 9}


@pytest.mark.usefixtures("only_mean")
def test_more_predictors_can_be_in_the_table(inspector: InspectorModel, examples: Examples) -> None:
    with_other = evaluate(inspector, examples, others={"zero": lambda rows: np.zeros((len(rows), 12))})
    assert with_other.predictors == ("inspector", "zero", "mean")
    assert with_other.scores["test"]["zero"].targets["gpu_burst_s"].mape == 1.0


@pytest.mark.usefixtures("only_mean")
def test_of_another_split_only_rows_that_it_has_not_seen(inspector: InspectorModel, examples: Examples) -> None:
    other = evaluate(inspector, examples, "random")
    assert other.split == "random"
    assert {item.split_architecture for item in other.items} == {"test"}
    assert any("architecture" in note for note in other.notes)


@pytest.mark.usefixtures("only_mean")
def test_a_dataset_that_changed_is_noted(inspector: InspectorModel, examples: Examples) -> None:
    assert not evaluate(inspector, examples).notes
    (note,) = evaluate(inspector, dataclasses.replace(examples, sha256="other")).notes
    assert "changed" in note


def test_rows_of_another_setting_or_role_are_refused(inspector: InspectorModel, examples: Examples) -> None:
    with pytest.raises(BadInput, match="setting"):
        evaluate(inspector, dataclasses.replace(examples, setting="v100-p1w2-pcie"))
    with pytest.raises(BadInput, match="role"):
        evaluate(inspector, dataclasses.replace(examples, role="ps"))


def test_the_text_has_every_target_and_predictor(found: Evaluation) -> None:
    text = to_text(found)
    for word in (*COLUMNS, *TABLE, "mean of all", "mean of net_tx", "spread of the ensemble", "measured rows"):
        assert word in text
    assert max(len(line) for line in text.splitlines()) <= 110
    assert "no value in the test rows: gpu_mem_burst_s, gpu_mem_idle_s, gpu_mem_burst_pct" in text
    assert not [line for line in text.splitlines() if line.startswith("gpu_mem") or set(line.split()[1:]) == {"-"}]


def test_one_test_workload_has_no_range_and_so_the_mape_of_all_predictors(
    inspector: InspectorModel, examples: Examples
) -> None:
    tests = [item for item in examples.items if item.split_architecture == "test"]
    kept = tuple(item for item in examples.items if item not in tests[1:])
    text = to_text(evaluate(inspector, dataclasses.replace(examples, items=kept)))
    assert "errors on 1 test workload (" in text
    assert "MAPE %" in text and "NRMSE" not in text and " - " not in text


def test_csv_json_and_markdown_say_the_same(found: Evaluation, tmp_path: Path) -> None:
    write_reports(tmp_path, found, {"training": {"seconds": 1.5}})
    rows = list(csv.DictReader(io.StringIO((tmp_path / "errors.csv").read_text())))
    value = json.loads((tmp_path / "report.json").read_text())
    assert len(rows) == len(value["errors"]) == 2 * len(TABLE) * (12 + 4 + 1)
    for of_csv, of_json in zip(rows, value["errors"], strict=True):
        assert of_csv["target"] == of_json["target"]
        assert of_csv["nrmse"] == ("" if of_json["nrmse"] is None else str(of_json["nrmse"]))
    overall = next(row for row in value["errors"] if row["target"] == "all" and row["side"] == "test")
    assert f"| mean of all | {100 * overall['nrmse']:.1f} |" in (tmp_path / "report.md").read_text()
    assert value["training"] == {"seconds": 1.5}
    assert {row["provenance"] for row in rows} == {"measured"}
    assert to_csv([{"provenance": "measured", **row} for row in found.rows()]) == (tmp_path / "errors.csv").read_text()
    assert to_json(found, {})["workloads"] == {"train": 27, "val": 9, "test": 9}
    assert "seconds 1.5" in to_markdown(found, {"training": {"seconds": 1.5}})


def test_predictions_are_written_with_what_was_true(found: Evaluation, tmp_path: Path) -> None:
    write_reports(tmp_path, found, {})
    rows = list(csv.DictReader(io.StringIO((tmp_path / "predictions.csv").read_text())))
    assert len(rows) == 9 * 9  # workloads times known targets
    first = rows[0]
    assert first["family"] == "alexnet" and first["target"] == "gpu_burst_s"
    assert float(first["true"]) == found.truth[0, 0]
    assert float(first["inspector"]) == found.predicted[INSPECTOR][0, 0]
    assert float(first["spread"]) > 0


def test_pictures_are_written(found: Evaluation, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    from driple.inspector.evaluation.plots import draw

    draw(tmp_path, found)
    starts = {path.name: path.read_bytes()[:4] for path in tmp_path.iterdir()}
    assert starts == {"errors.png": b"\x89PNG", "predictions.png": b"\x89PNG"}


@pytest.mark.usefixtures("only_mean")
def test_servers_are_judged_too(tmp_path: Path) -> None:
    servers = inspector_work.examples(tmp_path, role="ps")
    judged = evaluate(work.trained(servers).inspector, servers)
    assert judged.scores["test"][INSPECTOR].targets["net_tx_burst_s"].nrmse is not None
    assert judged.scores["test"][INSPECTOR].targets["gpu_burst_s"].nrmse is None


# The spread.


def test_factors_make_two_thirds_of_the_errors_lie_within_one_spread() -> None:
    drawn = np.random.default_rng(0)
    truth = drawn.normal(size=(3000, 12))
    predicted, spread = np.zeros((3000, 12)), np.full((3000, 12), 0.1)
    found = np.asarray(factors(truth, predicted, spread))
    assert found.shape == (12,) and np.allclose(found, 10, rtol=0.1)
    inside = coverage(truth, predicted, spread * found)
    assert inside["within_1"] == pytest.approx(0.683, abs=0.01)
    assert inside["within_2"] == pytest.approx(0.954, abs=0.01)


def test_few_rows_share_a_factor_and_nulls_do_not_count() -> None:
    truth = np.full((4, 12), 2.0)
    truth[:, 5] = np.nan
    found = factors(truth, np.zeros((4, 12)), np.ones((4, 12)))
    assert found == (2.0,) * 12
    assert coverage(truth, np.zeros((4, 12)), np.ones((4, 12))) == {"values": 44, "within_1": 0.0, "within_2": 1.0}


def test_networks_that_agree_exactly_give_no_infinite_factor() -> None:
    found = factors(np.ones((4, 12)), np.ones((4, 12)), np.zeros((4, 12)))
    assert np.isfinite(found).all() and min(found) > 0


def test_without_values_there_is_no_coverage() -> None:
    nothing = np.full((2, 12), np.nan)
    assert coverage(nothing, nothing, nothing)["within_1"] is None
    assert factors(nothing, nothing, nothing) == (1.0,) * 12
