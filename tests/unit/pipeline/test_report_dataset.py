"""The page of datasets: counts, sides, provenance, repetitions, and files that cannot be read."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from driple.pipeline.cli_report import main
from driple.pipeline.datasets.dataset_file import Dataset, put, read, to_bytes
from driple.pipeline.reports.dataset_page import by_workload, dataset_report, repeatability
from driple.pipeline.reports.page_layout import Report, render

pytest.importorskip("joblib")
pytest.importorskip("pyarrow")

SETTING = "cpu-p1w2-1g"
HOSTILE = "<svg onload=alert(1)>"


def quiet(what: str, done: int, total: int) -> None:
    """Nobody watches."""


@pytest.fixture(scope="module")
def built(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of the real runs."""
    from driple.pipeline.datasets.build import build_dataset
    from driple.pipeline.datasets.engine import Engine

    folder = tmp_path_factory.mktemp("datasets")
    build_dataset([checkout / "tests/data/runs"], output=folder, engine=Engine(jobs=1))
    return folder / f"{SETTING}.parquet"


def changed(built: Path, folder: Path, **values: Any) -> Path:
    """The same dataset with other values in every row."""
    dataset = read(built, SETTING)
    rows = [{**row, **values} for row in dataset.rows]
    path = folder / built.name
    put(to_bytes(Dataset(SETTING, rows, dataset.graphs), {}), path)
    return path


def section(report: Report, title: str) -> str:
    (found,) = [part.body for part in report.sections if part.title == title]
    return found


def test_counts_sides_and_provenance(built: Path) -> None:
    report = dataset_report([built], built, quiet)
    facts = report.facts["datasets"][SETTING]
    assert (facts["rows"], facts["runs"], facts["workloads"], facts["graphs"]) == (9, 3, 3, 3)
    assert facts["families"] == {"lenet": 3, "nmt": 3, "resnet": 3}
    assert facts["provenance"] == {"measured": 9}
    assert sum(facts["sides"]["architecture"].values()) == 9
    families = section(report, "Model families")
    assert [f">{name}</th>" in families for name in ("lenet", "nmt", "resnet")] == [True] * 3
    assert ">measured</th>" in section(report, "Provenance")
    assert "Histogram of ops (or groups) of a graph: 3 values" in section(report, "Distributions")
    assert "limit at 20" in section(report, "Quality")
    assert section(report, "All workloads").count("<tr>") == 1 + 3
    assert not report.notes


def test_what_readers_must_not_overlook(built: Path, tmp_path: Path) -> None:
    path = changed(built, tmp_path, provenance="simulated", flags=["foreign_load", "gaps:3"], rules_version=1)
    report = dataset_report([path], path, quiet)
    assert report.facts["datasets"][SETTING]["flags"] == {"foreign_load": 9, "gaps": 9}
    assert len(report.notes) == 3
    assert "simulated rows" in report.notes[0]
    assert "3 runs measured while other programs used the machine" in report.notes[1]
    assert "9 rows made by older rules" in report.notes[2]


def test_everything_from_the_file_is_escaped(built: Path, tmp_path: Path) -> None:
    texts = ("model", "family", "optimiser", "update", "host_kernel", "git_commit", "traffic_source", "versions")
    path = changed(built, tmp_path, **dict.fromkeys(texts, HOSTILE), flags=[HOSTILE], gpu_pattern=HOSTILE)
    page = render(dataset_report([path], path, quiet))
    assert HOSTILE not in page
    assert page.count("&lt;svg onload=alert(1)&gt;") > 6


def test_repetitions_give_the_noise(built: Path) -> None:
    rows = [row for row in read(built, SETTING).rows if row["model"] == "lenet"]
    again = [{**row, "run_id": "again", "net_rx_burst_s": 3 * row["net_rx_burst_s"]} for row in rows]
    assert len(by_workload([*rows, *again])) == 1
    found = repeatability([*rows, *again])
    assert found["net_rx_burst_s"] == [pytest.approx(0.5)]  # 1 and 3: half of 2 over 2
    assert found["net_rx_idle_s"] == [0.0]
    assert found["gpu_mem_burst_s"] == []


def test_published_rows_without_names_are_workloads_of_their_own(built: Path, tmp_path: Path) -> None:
    absent = dict.fromkeys(("model", "family", "task", "role", "step_s", "split_architecture", "foreign_cpu_pct"))
    path = changed(built, tmp_path, **absent, provenance="published")
    report = dataset_report([path], path, quiet)
    assert "The families are unknown" in section(report, "Model families")
    assert "Metrics of published rows, 9 rows" in section(report, "Distributions")


def test_a_folder_has_all_files_and_says_which_cannot_be_read(
    built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(built, tmp_path)
    (tmp_path / "cpu-p2w2-1g.parquet").write_bytes(b"PAR1 cut")
    (tmp_path / "notes.parquet").write_bytes(b"of somebody else")
    assert main([str(tmp_path), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert list(facts["datasets"]) == [SETTING]
    assert [left["file"] for left in facts["set_aside"]] == ["cpu-p2w2-1g.parquet"]
    page = (tmp_path / "report.html").read_text()
    assert f"{SETTING}: Splits</h2>" in page
    assert "not a dataset that can be read" in page


def test_one_file_has_its_page_beside_it(built: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copy(built, tmp_path)
    assert main([str(tmp_path / built.name)]) == 0
    assert (tmp_path / f"{SETTING}.html").is_file()
    (tmp_path / built.name).write_bytes(b"cut")
    assert main([str(tmp_path / built.name)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
