"""driple-build-dataset as a user meets it: its report, its exit codes, its one-line errors."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from driple.pipeline.cli import ProgressBar, main, to_text
from driple.pipeline.datasets.build_report import BuildResult, LeftOut, SettingReport

pytest.importorskip("joblib")
pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def runs(checkout: Path) -> Path:
    return checkout / "tests/data/runs"


def test_a_build_and_its_report(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main([str(runs), "--output", str(out), "--jobs", "1"]) == 0
    count = len(list(runs.rglob("run.json")))
    text = capsys.readouterr()
    assert text.out.endswith(f"{count} found, {count} used\n")
    assert text.err == ""
    assert main([str(runs), "--output", str(out), "--jobs", "1", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["runs"], report["computed"], report["set_aside"]) == (count, 0, [])
    for name, found in report["settings"].items():
        assert found["file"] == str(out / f"{name}.parquet")
        assert (found["kept"], found["added"], found["written"]) == (found["rows"], 0, False)


def test_every_run_set_aside_is_exit_code_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "traces/e/\x1b[31mrun").mkdir(parents=True)
    (tmp_path / "traces/e/\x1b[31mrun/run.json").write_text("{}")
    assert main([str(tmp_path / "traces"), "--output", str(tmp_path / "out")]) == 1
    text = capsys.readouterr().out
    assert "set aside, 1 of 1:" in text
    assert "\\x1b[31mrun: run.json: schema version None" in text
    assert "\x1b" not in text
    assert text.endswith("1 found, 0 used, 1 set aside\n")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ([], "give folders of traces, or --published FILE"),
        (["here", "--published", "x.pkl"], "give folders of traces, or --published FILE"),
        (["here", "--setting", "v100-p1w2-pcie"], "--setting goes with exactly one --published FILE"),
        (["nowhere"], "nowhere: no such folder"),
        (["."], "no run directories"),
        ([".", "--engine", "spark://a:1"], "expected local, dask://host:port"),
        ([".", "--jobs", "0"], "--jobs: expected 1 or more"),
        ([".", "--engine", "ray://auto", "--jobs", "2"], "--jobs goes with --engine local"),
        (["--published", "x.pkl"], "x.pkl: no such file"),
        (["--published", "x.pkl", "--setting", "nonsense"], "'nonsense' is not a setting"),
        (["--published", "1_V100-P1w2ho_PCIe.pkl"], "1_V100-P1w2ho_PCIe.pkl: no such file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(
    words: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        code = main(words)
    except SystemExit as stop:
        code = int(stop.code or 0)
    error = capsys.readouterr().err
    assert code == 2
    assert reason in error
    assert error.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_published_files_are_imported_and_told_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    parts = tuple(
        {side: [torch.ones(2, *shape)] if side != "val" else [] for side in ("train", "val", "test")}
        for shape in ((3, 3), (3, 3), (12,))
    )
    path = tmp_path / "2_V100-P2w2ho_PCIe.pkl"
    torch.save(parts, path)
    words = ["--published", str(path), "--output", str(tmp_path / "out")]
    assert main(words) == 0
    text = capsys.readouterr().out
    assert text.startswith("v100-p2w2-pcie: 4 rows (4 added, 0 replaced, 0 kept) of 4 runs, 1 graphs, 0 model families")
    assert "  split architecture: no rows in train and val and test\n  split random: no rows in val\n" in text
    content = (tmp_path / "out/v100-p2w2-pcie.parquet").read_bytes()
    assert main(words) == 0
    assert "0 added, 0 replaced, 4 kept" in capsys.readouterr().out
    assert (tmp_path / "out/v100-p2w2-pcie.parquet").read_bytes() == content
    parts[2]["test"][0][0, 0] = 9.0
    parts[0]["train"], parts[1]["train"], parts[2]["train"] = ([part["train"][0][:1]] for part in parts)
    torch.save(parts, path)
    assert main(words) == 0
    assert "3 rows (0 added, 3 replaced, 0 kept, 1 removed)" in capsys.readouterr().out
    torch.save({"weight": torch.zeros(1)}, path)
    assert main(words) == 2
    assert "a checkpoint (1 weights such as 'weight'), not a dataset" in capsys.readouterr().err


def test_the_report_says_what_a_small_dataset_lacks() -> None:
    done = SettingReport("cpu-p1w2-1g", "d/cpu-p1w2-1g.parquet", added=3, rows=3, runs=1, graphs=1, families=1)
    done.written, done.by_older_rules = True, 2
    done.empty = {"architecture": ("val", "test"), "random": ()}
    left = [LeftOut("t/a", "unforeseen KeyError: 'x'", "Traceback\n  deep"), LeftOut("t/b", "missing")]
    assert to_text(BuildResult(found=3, settings=[done], set_aside=left)).splitlines() == [
        "cpu-p1w2-1g: 3 rows (3 added, 0 replaced, 0 kept) of 1 runs, 1 graphs, 1 model families"
        " -> d/cpu-p1w2-1g.parquet",
        "  split architecture: no rows in val and test",
        "  2 rows were made by older rules; their runs are gone",
        "",
        "set aside, 2 of 3:",
        "  t/a: unforeseen KeyError: 'x'",
        "  t/b: missing",
        "  the first unexpected error (--json has all of them):",
        "Traceback",
        "  deep",
        "",
        "3 found, 1 used, 2 set aside",
    ]


def test_progress_is_for_terminals_only(capsys: pytest.CaptureFixture[str]) -> None:
    progress = ProgressBar()
    progress(1, 2, 0)
    progress.clear()
    assert capsys.readouterr().err == ""


def test_a_terminal_sees_a_bar(runs: Path, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "driple.pipeline.cli", str(runs), "--output", str(tmp_path / "out"), "--jobs", "1"]
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=theirs, timeout=100)
    os.close(theirs)
    seen = os.read(ours, 100_000).decode()
    os.close(ours)
    count = len(list(runs.rglob("run.json")))
    assert result.returncode == 0
    assert f"\r[{'#' * 30}] {count}/{count} runs\x1b[K" in seen
    assert seen.endswith("\r\x1b[K")
