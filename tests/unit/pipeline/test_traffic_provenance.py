"""driple-traffic on simulated runs: it says so everywhere, and never mixes them with measured ones."""

from __future__ import annotations

import csv
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from driple.contracts.manifest import SIMULATED, Manifest
from driple.pipeline.cli_traffic import main

RUN = "cpu-p1w2-1g-lenet-b8-s32-momentum-sync-c365236547d4"


@pytest.fixture
def traces(checkout: Path, tmp_path: Path) -> Path:
    """The same run twice: measured, and as if it was simulated."""
    for kind in ("measured", SIMULATED):
        shutil.copytree(checkout / "tests/data/runs" / RUN, tmp_path / "traces" / kind / RUN)
    path = tmp_path / "traces" / SIMULATED / RUN / "run.json"
    found = Manifest.read(path)
    replace(found, hosts={name: replace(host, kind=SIMULATED) for name, host in found.hosts.items()}).write(path)
    return tmp_path / "traces"


def test_simulated_runs_say_so(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main([str(traces / SIMULATED), "--csv", str(out), "--figures", str(out)]) == 0
    text = capsys.readouterr().out
    assert "SIMULATED" in text.splitlines()[0]
    head = next(line for line in text.splitlines() if line.startswith("task "))
    assert head.split() == ["task", "simulated", "formula", "ratio"]
    for path in out.glob("*.csv"):
        with path.open() as stream:
            assert {row["provenance"] for row in csv.DictReader(stream)} == {SIMULATED}, path.name
    figures = list(out.glob("*.svg"))
    assert figures and all("(simulated)" in path.read_text() for path in figures)
    target = tmp_path / "x.json"
    assert main([str(traces / SIMULATED), "--json", "--perfetto", str(target)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["provenance"], found["jobs"][0]["provenance"]) == (SIMULATED, SIMULATED)
    assert "throughput (simulated)" in target.read_text()


def test_measured_runs_do_not(traces: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(traces / "measured"), "--csv", str(tmp_path / "out")]) == 0
    text = capsys.readouterr().out
    assert "simulated" not in text.lower() and "measured" in text
    with (tmp_path / "out/volumes.csv").open() as stream:
        assert {row["provenance"] for row in csv.DictReader(stream)} == {"measured"}


@pytest.mark.parametrize("order", [("measured", SIMULATED), (SIMULATED, "measured")])
def test_both_kinds_together_are_refused(
    traces: Path, capsys: pytest.CaptureFixture[str], order: tuple[str, str]
) -> None:
    assert main([str(traces / kind) for kind in order]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1
    for kind in order:
        assert f"{traces / kind / RUN} is {kind}" in captured.err
    assert "separately" in captured.err


def test_pairs_need_the_flow_tables_of_all_tasks(traces: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = traces / SIMULATED / RUN
    (table,) = (run / "trace").glob("worker-1.flows.parquet")
    table.unlink()
    found = Manifest.read(run / "run.json")
    name = str(table.relative_to(run))
    replace(found, checksums={key: sum_ for key, sum_ in found.checksums.items() if key != name}).write(
        run / "run.json"
    )
    assert main([str(run), "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert (job["pairs"], job["flows"]) == ([], []) and set(job["bytes_sent"]) == {"ps:0", "worker:0", "worker:1"}
    assert "no flow table of worker:1: read from interface counters alone, without pairs and flows" in job["notes"]
