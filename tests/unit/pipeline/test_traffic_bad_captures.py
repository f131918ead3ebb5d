"""driple-traffic on captures with wrong times, and on folders in which a capture is bad."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from capture_files import capture, frame

from driple.contracts.errors import BadInput
from driple.contracts.formats.packets import TCP
from driple.pipeline.cli_traffic import main
from driple.pipeline.reports.registry import write_report
from driple.pipeline.traffic.packet_columns import Endpoint
from driple.pipeline.traffic.traffic_events import Events, TaskFlow

NOW = 1_700_000_000
GOOD = [(NOW + 0.01 * i, frame(1, 2, 1000)) for i in range(50)]
DECADES = [(0.0, frame(1, 2, 1000)), *GOOD]


def test_a_capture_that_spans_decades_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.pcap"
    capture(path, DECADES)
    assert main([str(path), "--json"]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1
    assert str(path) in captured.err and "54 years" in captured.err


def test_captures_of_one_job_that_are_decades_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture(tmp_path / "a.pcap", GOOD)
    capture(tmp_path / "b.pcap", [(t - NOW, data) for t, data in GOOD])
    assert main([str(tmp_path)]) == 2
    assert "years apart" in capsys.readouterr().err


def test_times_that_go_back_give_no_negative_duration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capture(tmp_path / "x.pcap", GOOD[::-1])
    assert main([str(tmp_path / "x.pcap"), "--json"]) == 0
    (job,) = json.loads(capsys.readouterr().out)["jobs"]
    assert job["duration_s"] == pytest.approx(0.49)
    assert all(flow["end_s"] >= flow["start_s"] >= 0 for flow in job["flows"])
    assert job["peak_to_mean"]["10 ms"] >= 1


def test_bins_that_no_memory_holds_are_refused() -> None:
    flow = TaskFlow(Endpoint("a", 1), Endpoint("b", 2), TCP, "a", "b")
    events = Events(np.array([0.0, 1e6]), np.array([0, 0]), np.array([10, 10]), (flow,), 0.001)
    assert events.peak_to_mean(0.001) == pytest.approx(1e9)  # of the two bins: the one at the end is not whole
    for make in (events.throughput, events.pair_throughput):
        with pytest.raises(BadInput, match="bins of 0.001 s are too many"):
            make(0.001, 0, 1e6)
    assert len(events.throughput(1, 0, 1e6)) == 1e6


@pytest.mark.parametrize("bad", ["text", "decades", "empty"])
def test_a_bad_capture_among_good_ones_is_set_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bad: str
) -> None:
    folder = tmp_path / "job"
    folder.mkdir()
    capture(folder / "a.pcap", GOOD)
    if bad == "text":
        (folder / "b.pcap").write_text("no capture")
    else:
        capture(folder / "b.pcap", DECADES if bad == "decades" else [])
    assert main([str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["jobs"][0]["bytes"] == 50 * 1054
    ((path, reason),) = [(one["path"], one["reason"]) for one in found["set_aside"]]
    assert path == str(folder / "b.pcap") and reason and path not in reason
    assert main([str(folder)]) == 0
    assert f"set aside: {folder / 'b.pcap'}: {reason}" in capsys.readouterr().out
    assert "set aside: b.pcap" in write_report(folder, output=tmp_path / "x.html").path.read_text()


def test_a_folder_of_bad_captures_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("a.pcap", "b.pcap"):
        (tmp_path / name).write_text("no capture")
    assert main([str(tmp_path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1 and "1 more" in captured.err


def test_a_record_of_a_month_has_a_table_and_no_timeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.pcap"
    capture(path, [*GOOD, (NOW + 30 * 86400, frame(1, 2, 1000))])
    assert main([str(path)]) == 0
    capsys.readouterr()
    assert main([str(path), "--csv", str(tmp_path / "out"), "--bins", "1"]) == 0
    rows = (tmp_path / "out" / "throughput.csv").read_text().splitlines()
    assert len(rows) == 1 + 2 * 51  # bins without bytes are left out
    capsys.readouterr()
    target = tmp_path / "x.json"
    assert main([str(path), "--perfetto", str(target)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1
    assert str(path) in captured.err and "too many" in captured.err
    assert not target.exists()
