from __future__ import annotations

import csv
import json
import os
import struct
from pathlib import Path

import pytest

from driple.pipeline.bursts.trace_metrics import metrics
from driple.pipeline.cli_metrics import main

KEYS = ["pattern", "burst_s", "idle_s", "burst_amount", "idle_amount", "bursts", "period_s", "refresh_s", "flags"]


@pytest.fixture
def wave(tmp_path: Path) -> Path:
    path = tmp_path / "wave.csv"
    rows = (f"{i * 0.1:.1f},{90 + i % 3 if i % 20 < 8 else 5 + i % 2},{1000}" for i in range(1, 601))
    path.write_text("time,util_pct,steady\n" + "\n".join(rows))
    return path


def test_json_has_what_is_promised(wave: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(wave), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert set(shown["series"]) == {"util_pct", "steady"}
    found = shown["series"]["util_pct"]
    assert set(KEYS) <= set(found)
    assert (found["pattern"], found["bursts"], found["flags"]) == ("BIB", 29, [])
    assert found["burst_s"] == pytest.approx(0.8) and found["idle_s"] == pytest.approx(1.2)
    assert found["refresh_s"] == pytest.approx(0.1)
    assert shown["series"]["steady"]["pattern"] == "B"


def test_the_table_is_for_people(wave: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(wave)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split()[:4] == ["series", "pattern", "burst", "idle"]
    assert lines[3].split()[:6] == ["util_pct", "BIB", "800", "ms", "1.2", "s"]


def test_a_run_is_read_with_its_steps_as_guide(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = next((checkout / "tests/data/runs").glob("*nmt_small*"))
    assert main([str(run), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["read_as"].startswith("run cpu-p1w2-1g-nmt_small")
    assert {"ps:0/net_tx", "worker:0/net_rx", "worker:1/gpu"} <= set(shown["series"])
    assert 18 <= shown["series"]["worker:0/net_rx"]["bursts"] <= 20  # partial ones at the ends are left out


def test_a_plot_is_a_picture_and_the_same_each_time(wave: Path, tmp_path: Path) -> None:
    first, second = tmp_path / "a.png", tmp_path / "b.png"
    assert main([str(wave), "--plot", str(first)]) == 0
    assert main([str(wave), "--plot", str(second)]) == 0
    data = first.read_bytes()
    assert data.startswith(b"\x89PNG") and struct.unpack(">II", data[16:24])[0] > 500
    assert data == second.read_bytes()


def test_perfetto_gets_a_counter_and_its_spans(wave: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    assert main([str(wave), "--perfetto", str(out)]) == 0
    events = json.loads(out.read_text())["traceEvents"]
    counters = [e for e in events if e["ph"] == "C" and e["name"] == "util_pct"]
    bursts = [e for e in events if e["ph"] == "X" and e["name"] == "burst"]
    assert len(counters) == 600 and len(bursts) == 29
    assert sum(e["dur"] for e in bursts) / 29e6 == pytest.approx(0.8)


def test_csv_has_a_row_for_each_series(wave: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    assert main([str(wave), "--csv", str(out)]) == 0
    rows = {row["series"]: row for row in csv.DictReader(out.read_text().splitlines())}
    assert set(KEYS) <= set(rows["util_pct"])
    assert float(rows["util_pct"]["burst_s"]) == pytest.approx(0.8) and rows["steady"]["pattern"] == "B"


def test_the_function_gives_typed_metrics_and_prints_nothing(
    wave: Path, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = metrics(str(wave), values=["util_pct"], step_s=2.0)
    assert [one.name for one in found] == ["util_pct"] and found.read_as == "CSV"
    assert found["util_pct"].bib.burst_s == pytest.approx(0.8)
    run = metrics(next((checkout / "tests/data/runs").glob("*lenet*")))
    frame = run.to_frame().set_index("series")
    assert frame.loc["worker:0/net_rx", "burst_s"] == run["worker:0/net_rx"].bib.burst_s
    assert frame.loc["worker:0/net_rx", "unit"] == "B/s"
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["missing.csv"], "missing.csv: No such file or directory"),
        (["."], "run.json: No such file or directory"),
        (["wave.csv", "--time", "when"], "no column 'when'"),
        (["wave.csv", "--plot", "x.txt"], "expected a name that ends in"),
        (["wave.csv", "--plot", "no/such/folder/x.png"], "No such file or directory"),
        (["wave.csv", "--perfetto", "no/such/folder/x.json"], "No such file or directory"),
        (["wave.csv", "--csv", "no/such/folder/x.csv"], "No such file or directory"),
        (["wave.csv", "--step", "0"], "--step: expected more than 0"),
        (["wave.csv", "--step", "nan"], "--step: expected more than 0"),
        (["pipe"], "not a regular file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    wave: Path, arguments: list[str], reason: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(wave.parent)
    os.mkfifo("pipe")
    assert main(arguments) == 2
    error = capsys.readouterr().err
    assert reason in error and error.count("\n") == 1


def test_a_name_with_escapes_cannot_command_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "evil.csv"
    path.write_text("time,\x1b[2Jv\n1,2\n2,3\n")
    assert main([str(path)]) == 0
    assert "\x1b" not in capsys.readouterr().out
