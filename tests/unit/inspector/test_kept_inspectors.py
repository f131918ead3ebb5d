"""The inspectors of the repository belong to its datasets, and answer as well as their reports say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driple.inspector.data.dataset_rows import read_examples
from driple.inspector.evaluation.error_table import INSPECTOR, evaluate
from driple.inspector.model.inspector_folder import FILE, load

CHECKOUT = Path(__file__).resolve().parents[3]
KEPT = sorted(path.parent.name for path in (CHECKOUT / "inspectors").glob(f"*/{FILE}"))


def test_there_is_one_for_every_dataset() -> None:
    assert sorted(path.stem for path in (CHECKOUT / "datasets").glob("*.parquet")) == KEPT


@pytest.mark.parametrize("setting", KEPT)
def test_it_is_as_good_as_its_report_says(setting: str) -> None:
    inspector = load(CHECKOUT / "inspectors" / setting)
    examples = read_examples(CHECKOUT / "datasets", setting)
    assert inspector.provenance == "measured"
    assert inspector.dataset_sha256 == examples.sha256, "trained on other rows: driple-train it anew"
    found = evaluate(inspector, examples).scores["test"]
    report = json.loads((CHECKOUT / "inspectors" / setting / "report.json").read_text())
    said = next(row for row in report["errors"] if _is_overall(row))
    assert found[INSPECTOR].overall.nrmse == pytest.approx(said["nrmse"], rel=1e-3)
    errors = {name: score.overall.nrmse for name, score in found.items()}
    assert min(errors, key=lambda name: errors[name] or 0.0) == INSPECTOR, errors


def _is_overall(row: dict[str, object]) -> bool:
    return (row["side"], row["predictor"], row["target"]) == ("test", INSPECTOR, "all")
