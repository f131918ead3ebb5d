"""Runs that need not be done again because their rows are in a dataset."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from driple.orchestrator.cli import main
from driple.orchestrator.config.experiment import load_experiment
from driple.orchestrator.planning.plan import plan

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def dry_run(checkout: Path, tmp_path: Path, datasets: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    path = checkout / "experiments/p2w2.yaml"
    argv = [str(path), "--dry-run", "--json", "--output", str(tmp_path / "traces"), "--done", str(datasets)]
    assert main(argv) == 0
    return [run["id"] for run in json.loads(capsys.readouterr().out)["runs"] if run["done"]]


def write(folder: Path, rows: list[tuple[str, list[str] | None]], host_kind: str = "lab") -> None:
    folder.mkdir()
    flags = pa.array([row[1] for row in rows], type=pa.list_(pa.string()))
    kinds = pa.array([host_kind] * len(rows), type=pa.string())
    run_ids = pa.array([row[0] for row in rows], type=pa.string())
    table = pa.table({"run_id": run_ids, "flags": flags, "host_kind": kinds})
    pq.write_table(table, folder / "cpu-p2w2-1g.parquet")


def test_rows_in_a_dataset_count_and_spoilt_ones_do_not(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [run.id for run in plan(load_experiment(checkout / "experiments/p2w2.yaml"))]
    datasets = tmp_path / "datasets"
    rows = [(ids[0], ["net_tx:gaps:1"]), (ids[0], None), (ids[1], []), (ids[1], ["foreign_load"]), ("of another", [])]
    rows += [(ids[2], ["link_mismatch"]), (ids[3], ["share_mismatch"]), (ids[4], ["loopback_network"])]
    write(datasets, rows)
    assert dry_run(checkout, tmp_path, datasets, capsys) == [ids[0]]


def test_rows_measured_over_loopback_do_not_count_for_a_setting_with_a_link(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = plan(load_experiment(checkout / "experiments/p2w2.yaml"))[0].id
    write(tmp_path / "datasets", [(first, None)], host_kind="local")
    assert dry_run(checkout, tmp_path, tmp_path / "datasets", capsys) == []


def test_a_folder_without_that_setting_says_nothing(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dry_run(checkout, tmp_path, tmp_path, capsys) == []


@pytest.mark.parametrize("what", ["no such folder", "not a folder", "not a readable dataset"])
def test_what_cannot_be_read_is_one_line(
    checkout: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    datasets = tmp_path / "datasets"
    if what == "not a folder":
        datasets.write_text("")
    if what.startswith("not a readable"):
        datasets.mkdir()
        (datasets / "cpu-p2w2-1g.parquet").write_text("no Parquet")
    assert main([str(checkout / "experiments/p2w2.yaml"), "--dry-run", "--done", str(datasets)]) == 2
    error = capsys.readouterr().err
    assert what in error
    assert error.count("\n") == 1
