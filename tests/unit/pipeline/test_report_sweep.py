"""The page of a sweep, of real runs: what is on it, what is set aside, and how large it grows."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from driple.contracts.manifest import FAILED, Manifest
from driple.pipeline.cli_report import main
from driple.pipeline.datasets.run_rows import network_reason
from driple.pipeline.reports import sweep_page
from driple.pipeline.reports.page_layout import Report, render
from driple.pipeline.reports.sweep_page import TRACES_SHOWN, Used, look, sweep_report

pytest.importorskip("pyarrow")

HOSTILE = "<img src=x onerror=alert(1)>"


def quiet(what: str, done: int, total: int) -> None:
    """Nobody watches."""


@pytest.fixture(scope="module")
def runs(checkout: Path) -> Path:
    return checkout / "tests/data/runs"


@pytest.fixture(scope="module")
def report(runs: Path) -> Report:
    return sweep_report(runs, quiet)


def section(report: Report, title: str) -> str:
    (found,) = [part.body for part in report.sections if part.title == title]
    return found


def test_every_run_is_in_the_table_and_its_traces_have_bursts(report: Report, runs: Path) -> None:
    names = sorted(run.name for run in runs.iterdir())
    table, traces = section(report, "All runs"), section(report, "Traces")
    assert len(names) == 3
    for name in names:
        assert table.count(f">{name}</a>") == 1
        assert f">{name}</h3>" in traces
    assert traces.count("<figure>") == 9  # of each run a server and two workers
    assert traces.count('class="burst"') == 27
    assert "network RX: burst" in traces
    assert "GPU" not in traces  # the runs are of processors
    assert section(report, "Set aside") == "<p>No run was set aside.</p>"
    assert not report.notes


def test_links_of_the_table_lead_to_traces(report: Report) -> None:
    page = render(report)
    wanted = set(re.findall(r'href="#([^"]+)"', page))
    found = re.findall(r' id="([^"]+)"', page)
    assert len(found) == len(set(found))
    assert wanted
    assert wanted <= set(found)


def test_distributions_show_every_metric_that_has_values(report: Report) -> None:
    body = section(report, "Distributions")
    assert "Histogram of step time, a value for each run: 3 values" in body
    assert "Histogram of network TX, mean burst amount: 6 values" in body
    assert body.count("Histogram of") == 1 + 9 + 9
    assert "Without a value in every row: gpu_mem_burst_s, gpu_mem_idle_s, gpu_mem_burst_pct." in body


def test_quality_and_patterns_are_counted(report: Report) -> None:
    assert ">net_rx:burst_s_finer_than_refresh</th>" in section(report, "Quality")
    assert "limit at 20" in section(report, "Quality")
    assert ">parameter servers: network RX</th>" in section(report, "Patterns")
    assert "6 points, 6 of them within 10 %" in section(report, "Cycle and step")
    assert report.facts["flags"] == {"net_rx:burst_s_finer_than_refresh": 2}
    assert report.facts["patterns"]["net_rx"] == {"BIB": 9}


def test_broken_runs_are_on_the_page_and_stop_nothing(runs: Path, tmp_path: Path) -> None:
    for number, run in enumerate(sorted(runs.iterdir())):
        shutil.copytree(run, tmp_path / run.name)
        if number == 0:
            (tmp_path / run.name / "trace/worker-0.parquet").write_bytes(b"cut")
        elif number == 1:
            manifest = Manifest.read(run / "run.json")
            failed = replace(manifest, status=FAILED, failure=f"{HOSTILE} went away")
            failed.write(tmp_path / run.name / "run.json")
    (tmp_path / HOSTILE / "trace").mkdir(parents=True)
    (tmp_path / "other" / "x").mkdir(parents=True)
    (tmp_path / "other" / "x" / "run.json").write_text("{")
    report = sweep_report(tmp_path, quiet)
    page = render(report)
    reasons = {Path(left["run"]).name: left["reason"] for left in report.facts["set_aside"]}
    assert (report.facts["found"], report.facts["used"], len(reasons)) == (5, 1, 4)
    assert reasons[HOSTILE] == "run.json: missing"
    assert reasons["x"] == "run.json: not valid JSON (cut short?)"
    assert any("changed since it was sealed" in reason for reason in reasons.values())
    assert "<img" not in page
    assert "the run is marked failed: &lt;img src=x onerror=alert(1)&gt; went away" in page
    assert "4 runs of 5 set aside" in page


def test_of_two_copies_of_a_run_the_later_is_used(runs: Path, tmp_path: Path) -> None:
    run = min(runs.iterdir())
    for name in ("a", "b"):
        shutil.copytree(run, tmp_path / name / run.name)
    used, aside = look(tmp_path, quiet)
    assert [one.folder.parent.name for one in used] == ["b"]
    assert [(one.folder.parent.name, "the same run as" in one.reason) for one in aside] == [("a", True)]


def test_a_run_on_loopback_is_set_aside_for_the_reason_of_the_dataset(runs: Path, tmp_path: Path) -> None:
    run = min(runs.iterdir())
    shutil.copytree(run, tmp_path / run.name)
    replace(Manifest.read(run / "run.json"), network_not_as_asked="no lab").write(tmp_path / run.name / "run.json")
    report = sweep_report(tmp_path, quiet)
    (left,) = report.facts["set_aside"]
    assert (report.facts["used"], left["reason"]) == (0, network_reason("link_mismatch"))
    assert "did not communicate over the network of the setting" in section(report, "Set aside")


def test_a_sweep_without_one_usable_run_is_still_a_page(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r/run.json").write_text("[]")
    report = sweep_report(tmp_path, quiet)
    assert report.notes == ["No run can be used; the reasons are below."]
    assert [part.title for part in report.sections] == ["Overview", "Set aside"]


def test_hundreds_of_runs_stay_small(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few, _ = look(runs, quiet)
    many = [
        Used(run.folder, [{**row, "run_id": f"{row['run_id']}-{copy}"} for row in run.rows])
        for copy in range(200)
        for run in few
    ]
    monkeypatch.setattr(sweep_page, "look", lambda *_: (many, []))
    report = sweep_report(runs, quiet)
    assert section(report, "Traces").count("<h3") == TRACES_SHOWN
    assert section(report, "All runs").count("<tr>") == 1 + 600
    assert len(render(report).encode()) < 5_000_000


def test_the_command_writes_into_the_folder_and_tells(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = min(runs.iterdir())
    shutil.copytree(run, tmp_path / "sweep" / run.name)
    assert main([str(tmp_path / "sweep"), "--title", "My <sweep>"]) == 0
    assert "My <sweep> -> " in capsys.readouterr().out
    assert "<h1>My &lt;sweep&gt;</h1>" in (tmp_path / "sweep/report.html").read_text()
    output = tmp_path / "page.html"
    assert main([str(tmp_path / "sweep"), "--output", str(output), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["kind"], facts["used"], facts["page"]) == ("sweep", 1, str(output))
    assert output.is_file()


def test_a_run_directory_is_a_sweep_of_one(runs: Path) -> None:
    assert sweep_report(min(runs.iterdir()), quiet).facts["used"] == 1


@pytest.mark.parametrize("name", ["", "absent", "file.txt", "trace"])
def test_what_is_none_of_these_is_refused_in_one_line(
    name: str, runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file.txt").write_text("x")
    path = min(runs.iterdir()) / "trace" if name == "trace" else tmp_path / name
    assert main([str(path), "--output", str(tmp_path / "o.html")]) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "expected a sweep" in said
    assert "inspector.json" in said
    assert not (tmp_path / "o.html").exists()


def test_a_place_that_cannot_be_written_is_refused(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = str(min(runs.iterdir()))
    assert main([run, "--output", str(tmp_path)]) == 2
    assert main([run, "--output", str(tmp_path / "absent" / "o.html")]) == 2
    assert "cannot be written: No such file or directory" in capsys.readouterr().err
