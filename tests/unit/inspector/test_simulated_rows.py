"""Training on simulated rows: only where nothing was measured, or where it is asked for, and it is always said."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import inspector_work as work
import pytest

import driple
from driple.contracts.errors import BadInput
from driple.inspector.data.dataset_rows import find_dataset, read_examples
from driple.inspector.model.inspector_folder import load

SIMULATED = "simulated"
ADD = ("--set", "data.add_simulated=true")
Train = Callable[..., int]


@pytest.fixture
def measured(datasets: Path, tmp_path: Path) -> Path:
    """A folder of measured rows, for `train` instead of the shared one."""
    shutil.copytree(datasets, tmp_path / "datasets")
    return tmp_path / "datasets"


@pytest.fixture
def both(measured: Path) -> Path:
    """Measured and simulated rows of the same workloads."""
    work.write(work.zoo(), measured / SIMULATED, lambda row: row.update(provenance=SIMULATED))
    return measured


@pytest.fixture
def simulated(both: Path) -> Path:
    """Only simulated rows."""
    (both / f"{work.SETTING}.parquet").unlink()
    return both


def test_measured_rows_are_used_where_there_are_any(both: Path) -> None:
    assert find_dataset(both, work.SETTING) == both / f"{work.SETTING}.parquet"
    assert read_examples(both, work.SETTING).provenance == "measured"
    assert read_examples(both / SIMULATED, work.SETTING).provenance == SIMULATED
    (both / f"{work.SETTING}.parquet").unlink()
    assert find_dataset(both, work.SETTING) == both / SIMULATED / f"{work.SETTING}.parquet"
    with pytest.raises(BadInput, match="no such dataset"):
        find_dataset(both, work.SETTING, simulated=False)


def test_an_inspector_of_simulated_rows_says_so_everywhere(
    train: Train, simulated: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("--datasets", str(simulated)) == 0
    captured = capsys.readouterr()
    assert captured.err.startswith(f"SIMULATED: {work.SETTING} has no measured rows in {simulated}")
    assert captured.out.startswith(f"{work.SETTING}, worker, simulated rows")
    assert load(folder).provenance == SIMULATED
    assert (folder / "report.md").read_text().splitlines()[0].endswith("worker (simulated)")
    assert json.loads((folder / "report.json").read_text())["provenance"] == SIMULATED
    for name in ("errors.csv", "predictions.csv"):
        with (folder / name).open(newline="") as stream:
            assert {row["provenance"] for row in csv.DictReader(stream)} == {SIMULATED}
    assert train("--datasets", str(simulated), "--evaluate", "--json", small=False) == 0
    assert json.loads(capsys.readouterr().out)["provenance"] == SIMULATED
    answer = driple.predict("resnet20", setting=work.SETTING, inspectors=folder.parent, batch_size=[16, 32])
    assert str(answer).startswith(f"SIMULATED: {folder} learned from simulated rows, not from measurements")
    assert answer.to_json()["provenance"] == SIMULATED


def test_it_does_not_replace_an_inspector_of_measured_rows(
    train: Train, both: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train("--datasets", str(both)) == 0
    before = (folder / "inspector.json").read_bytes()
    assert train("--datasets", str(both / SIMULATED)) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.endswith("which one of simulated rows does not replace; give another --output")
    assert (folder / "inspector.json").read_bytes() == before


def test_both_kinds_are_used_only_if_asked_for_and_judged_on_measured_rows(
    train: Train, both: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone, mixed = (read_examples(both, work.SETTING, add_simulated=add) for add in (False, True))
    for side in ("val", "test"):
        judged = [[item.run_ids for item in found.side("architecture", side).items] for found in (alone, mixed)]
        assert judged[0] == judged[1] != []
    sizes = [len(found.side("architecture", "train")) for found in (alone, mixed)]
    assert sizes[1] == 2 * sizes[0]
    assert train("--datasets", str(both), *ADD) == 0
    assert "measured and simulated rows" in capsys.readouterr().out.splitlines()[0]
    assert load(folder).provenance == "measured and simulated"
    assert train("--datasets", str(both), "--evaluate", small=False) == 0
    assert "the dataset has changed" not in capsys.readouterr().out
    (answer,) = driple.predict("resnet20", setting=work.SETTING, inspectors=folder.parent)
    assert answer.provenance == "measured and simulated"


@pytest.mark.parametrize("kind", ["measured", SIMULATED])
def test_adding_simulated_rows_needs_both(
    train: Train, kind: str, both: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = both / f"{work.SETTING}.parquet" if kind == "measured" else both / SIMULATED / f"{work.SETTING}.parquet"
    gone.unlink()
    assert train("--datasets", str(both), *ADD) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "data.add_simulated: needs a measured dataset" in error


def test_rows_of_both_kinds_in_one_file_are_refused(measured: Path) -> None:
    path = measured / f"{work.SETTING}.parquet"
    count = len(work.zoo().rows)
    work.rewrite(path, provenance=["measured", *[SIMULATED] * (count - 1)])
    with pytest.raises(BadInput, match="measured and simulated in one dataset: they are never mixed"):
        read_examples(measured, work.SETTING)


def test_a_transfer_between_both_kinds_must_be_asked_for(
    train: Train, both: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "source"
    assert train("--datasets", str(both / SIMULATED), "--output", str(source)) == 0
    words = ("--datasets", str(both), "--transfer-from", str(source / work.SETTING), "--epochs", "1")
    capsys.readouterr()
    assert train(*words, small=False) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "learned from simulated rows, and this dataset has measured ones" in error
    assert train(*words, "--set", "transfer.allow_simulated=true", small=False) == 0
    assert "measured and simulated rows" in capsys.readouterr().out.splitlines()[0]
    assert load(tmp_path / "inspectors" / work.SETTING).provenance == "measured and simulated"
