"""driple-traffic on runs without packets, on captures, and on what is neither."""

from __future__ import annotations

import csv
import json
import struct
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from capture_files import capture, frame

from driple.pipeline.cli_traffic import main
from driple.pipeline.reports.registry import write_report

RUN = "cpu-p1w2-1g-lenet-b8-s32-momentum-sync-c365236547d4"


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """Two jobs in the layout of the published study: each worker has what it sent."""
    for number, name in enumerate(("tensorflow-mobilenetv2-adam-64-grpc-0", "tensorflow-mobilenetv2-adam-64-grpc-2")):
        folder = tmp_path / "study" / name
        folder.mkdir(parents=True)
        for worker in (1, 2):
            times = [100 + 0.01 * i * (1 + number) for i in range(300)]
            frames = [(t, frame(worker, 3 - worker, 1000)) for t in times]
            capture(folder / f"worker-{worker}-tcpdump.pcap", frames)
    return tmp_path / "study"


def shown(capsys: pytest.CaptureFixture[str], *argv: object) -> dict[str, Any]:
    assert main([*map(str, argv), "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_run_without_packets(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (job,) = shown(capsys, checkout / "tests/data/runs" / RUN)["jobs"]
    assert (job["source"], job["topology"], job["steps"]) == ("counters", "ps", 20)
    assert job["retransmitted_share"] is None and job["lost_share"] is None
    assert set(job["bytes_sent"]) == {"ps:0", "worker:0", "worker:1"}
    for task, ratio in job["relative_to_formula"].items():
        assert 0.99 < ratio < 1.05, task
    assert {tuple(pair[:2]) for pair in job["pairs"]} == {
        ("ps:0", "worker:0"), ("ps:0", "worker:1"), ("worker:0", "ps:0"), ("worker:1", "ps:0")
    }  # fmt: skip
    assert job["peak_to_mean"]["1 ms"] is None and job["peak_to_mean"]["10 ms"] > 1


def test_the_tables_are_for_people(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(checkout / "tests/data/runs" / RUN)]) == 0
    out = capsys.readouterr().out
    assert "bytes that a task sends in a step" in out and "bytes between tasks" in out
    assert main([str(checkout / "tests/data/runs")]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_figures_tables_and_the_perfetto_file(
    checkout: Path, study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    assert main([str(checkout / "tests/data/runs"), str(study), "--csv", str(out), "--figures", str(out)]) == 0
    capsys.readouterr()
    numbers = {path.name.partition("-")[0] for path in out.glob("fig*.svg")}
    assert numbers == {f"fig{i}" for i in range(3, 11)}
    assert {"table1-throughput.csv", "table2-throughput.csv", "flows.csv"} <= {path.name for path in out.iterdir()}
    assert {"table1-throughput.svg", "table2-throughput.svg"} <= {path.name for path in out.iterdir()}
    with (out / "fig10-loss.csv").open() as stream:
        rows = [row for row in csv.DictReader(stream) if row["model"] == "mobilenetv2"]
    assert [(row["loss_pct"], round(float(row["relative"]), 2)) for row in rows] == [("0.0", 1.0), ("2.0", 2.0)]
    target = tmp_path / "x.json"
    assert main([str(checkout / "tests/data/runs" / RUN), "--perfetto", str(target)]) == 0
    events = json.loads(target.read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "C", "X"}
    names = {event["args"].get("name") for event in events if event["ph"] == "M"}
    assert {"worker:0: steps", "flows", "throughput"} <= names
    assert sum(event["ph"] == "X" and event["name"].startswith("step ") for event in events) == 40
    assert main([str(study), "--perfetto", str(target), "--csv", str(tmp_path / "none")]) == 2
    assert not (tmp_path / "none").exists()


def test_throughput_of_pairs_in_bins_from_a_millisecond(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = study / "tensorflow-mobilenetv2-adam-64-grpc-0"
    rows = shown(capsys, folder, "--bins", "1", "10", "1000")["tables"]["throughput"]
    sent = 300 * 1054
    for bin_s in (0.001, 0.01, 1.0):
        own = [row for row in rows if row["bin_s"] == bin_s]
        for ends, expected in (
            ((None, None), 2 * sent),
            (("10.0.0.1", "10.0.0.2"), sent),
            (("10.0.0.2", "10.0.0.1"), sent),
        ):
            rates = [row["bytes_per_s"] for row in own if (row["source"], row["destination"]) == ends]
            assert sum(rates) * bin_s == pytest.approx(expected)
            assert len(rates) == (3 if bin_s == 1 else 300)  # a packet each 10 ms
    assert main([str(folder), "--bins", "0.1"]) == 2
    assert capsys.readouterr().err == "--bins: expected 1 to 1000 (ms), got 0.1\n"


def test_segments_that_the_kernel_sent_again(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = (checkout / "tests/data/runs").glob("*resnet20*")
    (job,) = shown(capsys, path)["jobs"]
    tables = [pq.read_table(each).to_pylist() for each in sorted(path.glob("trace/*.flows.parquet"))]
    flows = {(number, row["flow"]) for number, rows in enumerate(tables) for row in rows if row["of_task"] == 1}
    last = dict.fromkeys(flows, 0)
    for number, rows in enumerate(tables):
        for row in rows:
            if (number, row["flow"]) in flows:
                last[number, row["flow"]] = max(last[number, row["flow"]], row["retransmits"] or 0)
    assert 0 < job["retransmitted_segments"] <= sum(last.values())
    assert job["retransmitted_share"] is None


def test_the_layout_of_the_published_study(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    jobs = shown(capsys, study)["jobs"]
    assert isinstance(jobs, list)
    assert [(job["backend"], job["batch_size"], job["loss_pct"], job["workers"]) for job in jobs] == [
        ("grpc", 64, 0.0, 2),
        ("grpc", 64, 2.0, 2),
    ]
    assert jobs[0]["bytes_sent"] == {"10.0.0.1": 300 * 1054, "10.0.0.2": 300 * 1054}
    assert len(jobs[0]["flows"]) == 2


def test_captures_at_both_ends_count_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sent = [(100 + 0.01 * i, frame(1, 2, 1000)) for i in range(10)]
    back = [(100 + 0.01 * i, frame(2, 1, 0)) for i in range(10)]
    folder = tmp_path / "both"
    folder.mkdir()
    capture(folder / "one.pcap", sorted(sent + back))
    capture(folder / "two.pcap", sorted(sent[:8] + back))
    (job,) = shown(capsys, folder)["jobs"]
    assert job["bytes_sent"] == {"10.0.0.1": 10 * 1054, "10.0.0.2": 10 * 54}
    assert job["lost_share"] == pytest.approx(0.2)


def test_a_report_on_a_capture(tmp_path: Path) -> None:
    capture(tmp_path / "x.pcap", [(100 + 0.01 * i, frame(1, 2, 1000)) for i in range(50)])
    report = write_report(tmp_path / "x.pcap")
    assert report.facts["kind"] == "traffic"
    page = report.path.read_text()
    assert "10.0.0.1" in page and "<svg" in page


@pytest.mark.parametrize("what", ["missing", "empty", "text", "cut", "link"])
def test_bad_input_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str) -> None:
    path = tmp_path / "x.pcap"
    if what == "empty":
        path = tmp_path
    elif what == "text":
        path.write_text("no capture")
    elif what == "cut":
        path.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1) + bytes(3))
    elif what == "link":
        path.write_bytes(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 127) + bytes(20))
    assert main([str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1
    assert str(path) in captured.err
