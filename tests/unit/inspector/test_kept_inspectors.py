"""The inspectors of the repository belong to its datasets, and answer as well as their reports say."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from driple.contracts.formats.inspector import FILE, REPORT_FILE, WEIGHTS_PATTERN, folder_name
from driple.contracts.strategy import SERVER, WORKER
from driple.inspector.data.dataset_rows import read_examples
from driple.inspector.evaluation.error_table import INSPECTOR, evaluate
from driple.inspector.model.inspector_folder import load

CHECKOUT = Path(__file__).resolve().parents[3]
BEFORE = CHECKOUT / "tests/data/kept_inspectors/predictions.json"
"""Predictions of the same inspectors when all their arrays were in inspector.json (schema version 2)."""
BETTER = {"cpu-p1w2-5g": "trees"}
"""Baselines that are better than the inspector on the test side; docs/benchmarks/results.md names them."""
KEPT = sorted(path.parent.name for path in (CHECKOUT / "inspectors").glob(f"*/{FILE}"))


def role_of(name: str) -> str:
    """The role of the inspector in a folder of this name."""
    return next(role for role in (SERVER, WORKER) if name == folder_name(name.removesuffix(f"-{role}"), role))


def test_there_is_one_for_every_dataset() -> None:
    settings = sorted(path.stem for path in (CHECKOUT / "datasets").glob("*.parquet"))
    assert [name for name in KEPT if role_of(name) == WORKER] == settings
    assert {name.removesuffix("-ps") for name in KEPT if role_of(name) == SERVER} <= set(settings)


@pytest.mark.parametrize("name", KEPT)
def test_it_is_as_good_as_its_report_says(name: str) -> None:
    inspector = load(CHECKOUT / "inspectors" / name)
    assert folder_name(inspector.setting, inspector.role) == name
    examples = read_examples(CHECKOUT / "datasets", inspector.setting, inspector.role)
    assert inspector.provenance == "measured"
    assert inspector.dataset_sha256 == examples.sha256, "trained on other rows: driple-train it anew"
    found = evaluate(inspector, examples).scores["test"]
    report = json.loads((CHECKOUT / "inspectors" / name / REPORT_FILE).read_text())
    said = next(row for row in report["errors"] if _is_overall(row))
    assert found[INSPECTOR].overall.nrmse == pytest.approx(said["nrmse"], rel=1e-3)
    errors = {one: score.overall.nrmse for one, score in found.items()}
    best = min(errors, key=lambda one: errors[one] or 0.0)
    assert inspector.role == SERVER or best == BETTER.get(name, INSPECTOR), errors


@pytest.mark.parametrize("setting", sorted(json.loads(BEFORE.read_text())))
def test_it_predicts_what_it_did_before_its_arrays_moved(setting: str) -> None:
    inspector = load(CHECKOUT / "inspectors" / setting)
    before = json.loads(BEFORE.read_text())[setting]
    items = {item.run_ids[0]: item for item in read_examples(CHECKOUT / "datasets", setting).items}
    values, spread = inspector.predict([items[run_id] for run_id in before])
    # Bit for bit on the machine that converted them. Sums of float32 differ between processors.
    for name, found in (("values", values), ("spread", spread)):
        wanted = np.array([one[name] for one in before.values()], dtype=np.float64)
        np.testing.assert_allclose(found, wanted, rtol=1e-3 if name == "spread" else 1e-5)


@pytest.mark.parametrize("name", KEPT)
def test_its_json_is_small_and_every_kernel_point_is_stored_once(name: str) -> None:
    folder = CHECKOUT / "inspectors" / name
    assert (folder / FILE).stat().st_size < 100_000
    (weights,) = folder.glob(WEIGHTS_PATTERN)
    tables = {name: table for name, table in load_file(weights).items() if name.startswith("base.rows.")}
    points = tables[f"base.rows.{len(load(folder).preparation.facts)}"]
    assert len(points) == len(np.unique(points, axis=0)) > 10


def _is_overall(row: dict[str, object]) -> bool:
    return (row["side"], row["predictor"], row["target"]) == ("test", INSPECTOR, "all")
