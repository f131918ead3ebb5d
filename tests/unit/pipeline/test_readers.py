"""Files as tools write them, whole and broken."""

from __future__ import annotations

import gzip
import json
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driple.contracts.errors import BadInput
from driple.contracts.metrics import BUSY, NETWORK
from driple.pipeline.bursts.burst_metrics import measure
from driple.pipeline.readers.base import Source
from driple.pipeline.readers.registry import read_source
from driple.pipeline.traces.series import LEVEL

START = datetime(2026, 5, 4, 23, 59, 58)


def read(path: Path, time: str | None = None, values: tuple[str, ...] = (), counters: tuple[str, ...] = ()) -> Source:
    return read_source(path, time, values, counters)


def nvidia(
    path: Path, *, units: bool = True, brackets: bool = True, gpus: int = 2, rows: int = 600, cut: bool = True
) -> Path:
    """What `nvidia-smi --query-gpu=timestamp,index,name,... --format=csv -lms 100` writes while two GPUs train."""
    names = ["timestamp", "index", "name", "utilization.gpu [%]", "memory.used [MiB]", "fan.speed [%]"]
    lines = [", ".join(name if brackets else name.partition(" [")[0] for name in names)]
    for row in range(rows):
        for gpu in range(gpus):
            at = START + timedelta(milliseconds=100 * row + gpu)
            stamp = at.strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
            busy = (95 + (row * 7) % 5) if (row + 5 * gpu) % 20 < 12 else (row * 3) % 4
            cells = [stamp, str(gpu), "NVIDIA A100, 40GB".replace(",", ""), f"{busy} %", f"{20000 + gpu} MiB", "[N/A]"]
            lines.append(", ".join(cell if units or i < 3 else cell.split(" ")[0] for i, cell in enumerate(cells)))
    text = "\n".join(lines)
    path.write_text(text[:-30] if cut else text + "\n")
    return path


@pytest.mark.parametrize("units", [True, False])
@pytest.mark.parametrize("brackets", [True, False])
def test_nvidia_smi_in_all_its_spellings(tmp_path: Path, units: bool, brackets: bool) -> None:
    source = read(nvidia(tmp_path / "gpu.csv", units=units, brackets=brackets))
    assert source.what == "nvidia-smi CSV"
    series = {each.name: each for each in source.series}
    assert list(series) == [f"gpu{g}.{name}" for g in (0, 1) for name in ("utilization.gpu", "memory.used")]
    assert (series["gpu0.utilization.gpu"].kind, series["gpu0.memory.used"].kind) == (BUSY, LEVEL)
    assert len(series["gpu0.utilization.gpu"].t_s) == 600
    assert len(series["gpu1.utilization.gpu"].t_s) == 599  # the last line was cut short
    assert any("1 line cut short" in note for note in source.notes)
    found = measure(series["gpu1.utilization.gpu"])
    assert found.burst_s == pytest.approx(1.2, abs=0.01)
    assert found.idle_s == pytest.approx(0.8, abs=0.01)
    assert measure(series["gpu0.memory.used"]).pattern == "B"


def test_interleaved_gpus_without_an_index_are_refused_with_the_remedy(tmp_path: Path) -> None:
    path = tmp_path / "gpu.csv"
    rows = [f"2026/05/04 12:00:{i:02d}.000, {v} %" for i in range(30) for v in (90, 10)]
    path.write_text("timestamp, utilization.gpu [%]\n" + "\n".join(rows))
    with pytest.raises(BadInput, match="query-gpu=timestamp,index"):
        read(path)


def without_index(
    path: Path, *, gpus: int, period_s: float, jitter_s: float = 0.001, missing: float = 0.0, ticks: int = 200
) -> Path:
    """A log without an index: of each tick a row for each GPU, a few milliseconds apart. Each GPU has its own level."""
    random = np.random.default_rng(gpus)
    lines = ["timestamp, utilization.gpu [%]"]
    for tick in range(ticks):
        at = tick * period_s + abs(random.normal(0, jitter_s))
        for gpu in range(gpus):
            at += 0.002 + abs(random.normal(0, jitter_s)) if gpu else 0.0
            stamp = (START + timedelta(seconds=at)).strftime("%Y/%m/%d %H:%M:%S.%f")[:-3]
            if random.random() >= missing:
                lines.append(f"{stamp}, {10 * gpu + tick % 3} %")
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize("period_s", [0.1, 0.5, 1.0, 5.0])
@pytest.mark.parametrize("gpus", range(1, 9))
def test_gpus_without_an_index_are_told_apart_by_the_times_of_their_rows(
    tmp_path: Path, gpus: int, period_s: float
) -> None:
    source = read(without_index(tmp_path / "gpu.csv", gpus=gpus, period_s=period_s))
    assert [each.name for each in source.series] == [f"gpu{gpu}.utilization.gpu" for gpu in range(gpus)]
    for gpu, series in enumerate(source.series):
        assert len(series.t_s) == 200
        assert set(series.value) == {10.0 * gpu, 10.0 * gpu + 1, 10.0 * gpu + 2}


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_ticks_that_lack_a_row_are_left_out(tmp_path: Path, gpus: int) -> None:
    source = read(without_index(tmp_path / "gpu.csv", gpus=gpus, period_s=0.1, missing=0.05, ticks=600))
    assert len(source.series) == gpus
    for gpu, series in enumerate(source.series):
        assert len(series.t_s) > 300
        assert set(series.value) == {10.0 * gpu, 10.0 * gpu + 1, 10.0 * gpu + 2}
    assert any("without the row of a GPU" in note for note in source.notes)


def test_the_last_tick_may_be_cut_short(tmp_path: Path) -> None:
    path = without_index(tmp_path / "gpu.csv", gpus=4, period_s=0.5)
    path.write_text("\n".join(path.read_text().splitlines()[:-1]))
    assert [len(each.t_s) for each in read(path).series] == [200, 200, 200, 199]


@pytest.mark.parametrize("jitter_s", [0.003, 0.01, 0.03])
def test_one_gpu_with_jitter_stays_one(tmp_path: Path, jitter_s: float) -> None:
    (series,) = read(without_index(tmp_path / "gpu.csv", gpus=1, period_s=0.1, jitter_s=jitter_s, missing=0.05)).series
    assert len(series.t_s) > 150


def test_a_pause_in_the_log_changes_nothing(tmp_path: Path) -> None:
    first, second = (
        without_index(tmp_path / name, gpus=3, period_s=0.1).read_text().splitlines() for name in ("a", "b")
    )
    path = tmp_path / "gpu.csv"
    path.write_text("\n".join(first + [line.replace("2026/05/0", "2026/06/0") for line in second[1:]]))
    assert [len(each.t_s) for each in read(path).series] == [400, 400, 400]


def test_dmon_with_times(tmp_path: Path) -> None:
    path = tmp_path / "dmon.txt"
    rows = [f" 23:59:{s:02d}      {g}     {95 if s % 10 < 5 else 2}    {s % 3}" for s in range(60) for g in (0, 1)]
    path.write_text("#Time        gpu     sm    mem\n#HH:MM:SS    Idx      %      %\n" + "\n".join(rows))
    series = {each.name: each for each in read(path).series}
    assert measure(series["gpu0.sm"]).burst_s == pytest.approx(5.0)


def test_any_csv_by_naming_columns(tmp_path: Path) -> None:
    path = tmp_path / "sar.csv"
    lines = ["hostname;interval;timestamp;IFACE;rxkB/s;bytes total"]
    total = 0
    for i in range(400):
        busy = i % 10 < 3
        total += 5_000_000 if busy else 100
        lines.append(f"h;1;{1_700_000_000 + i};eth0;{4882.8 if busy else 0.1};{total}")
    path.write_text("\n".join(lines))
    source = read(path, "timestamp", ("rxkB/s",), ("bytes total",))
    value, counter = source.series
    assert (value.kind, counter.kind) == (NETWORK, NETWORK)
    for series in source.series:
        found = measure(series)
        assert found.burst_s == pytest.approx(3.0, abs=0.01)
        assert found.burst_amount == pytest.approx(5e6, rel=0.01)


def test_columns_are_found_without_being_named(tmp_path: Path) -> None:
    path = tmp_path / "plain.csv"
    path.write_text("time,util_pct,note\n" + "\n".join(f"{i * 0.1},{90 if i % 9 < 4 else 5},x" for i in range(200)))
    (series,) = read(path).series
    assert (series.name, series.kind) == ("util_pct", BUSY)


def test_times_of_day_go_on_after_midnight(tmp_path: Path) -> None:
    path = tmp_path / "day.csv"
    stamps = [(START + timedelta(seconds=i)).strftime("%H:%M:%S") for i in range(10)]
    path.write_text("time,v\n" + "\n".join(f"{s},{i}" for i, s in enumerate(stamps)))
    assert np.diff(read(path).series[0].t_s).tolist() == [1.0] * 9


@pytest.mark.parametrize(("stamp", "scale"), [(1.7e9, 1.0), (1.7e12, 1e3), (1.7e15, 1e6), (1.7e18, 1e9)])
def test_epochs_in_any_unit(tmp_path: Path, stamp: float, scale: float) -> None:
    path = tmp_path / "epoch.csv"
    path.write_text("timestamp,v\n" + "\n".join(f"{stamp + i * scale:.0f},{i}" for i in range(10)))
    assert np.diff(read(path).series[0].t_s) == pytest.approx(np.ones(9), abs=1e-3)


def kineto(device_in_args: bool = True) -> dict[str, Any]:
    events: list[Any] = [{"ph": "M", "name": "process_name", "pid": 0}, "not an event", {"ph": "X", "ts": "soon"}]
    for step in range(20):
        for stream in (7, 8):  # two streams overlap
            start = 1_000_000 + step * 100_000 + stream * 1000
            event = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": stream, "ts": start, "dur": 40_000}
            events.append({**event, "args": {"device": 0}} if device_in_args else event)
        events.append({"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "ts": step * 100_000, "dur": 90_000})
    return {"traceEvents": events}


@pytest.mark.parametrize("packed", [True, False])
def test_kineto_shows_when_a_kernel_ran(tmp_path: Path, packed: bool) -> None:
    text = json.dumps(kineto()).encode()
    path = tmp_path / ("trace.json.gz" if packed else "trace.json")
    path.write_bytes(gzip.compress(text) if packed else text)
    (series,) = read(path).series
    assert series.name == "gpu0.kernel_busy"
    found = measure(series)
    assert found.burst_s == pytest.approx(0.041, abs=0.001)
    assert found.idle_s == pytest.approx(0.059, abs=0.001)
    assert found.burst_amount == pytest.approx(100.0)


def test_a_trace_without_kernels_shows_its_processes(tmp_path: Path) -> None:
    path = tmp_path / "chrome.json"
    path.write_text(json.dumps([{"ph": "X", "pid": 3, "ts": i * 1e5, "dur": 5e4} for i in range(9)]))
    assert [s.name for s in read(path).series] == ["pid3.busy"]


def test_a_trace_of_ours_shows_every_column_and_how_it_was_sampled(checkout: Path) -> None:
    run = next((checkout / "tests/data/runs").glob("*resnet20*"))
    source = read(run / "trace/worker-0.parquet")
    names = [series.name for series in source.series]
    assert {"nic_rx_bytes", "task_cpu_pct", "task_rss_bytes"} <= set(names)
    assert "task_mem_traffic_bytes" not in names  # null throughout
    assert source.notes[0].startswith("sampler: every 10.0 ms")


def test_other_parquet_needs_names(tmp_path: Path) -> None:
    path = tmp_path / "other.parquet"
    pq.write_table(
        pa.table({"when_ns": np.arange(100) * 10**7, "busy": np.where(np.arange(100) % 10 < 5, 90.0, 1.0)}), path
    )
    with pytest.raises(BadInput, match="not a trace of Driple"):
        read(path)
    (series,) = read(path, "when_ns", ("busy",)).series
    assert measure(series).burst_s == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"\n\n  \n", "empty"),
        (b"PAR1 but not really", "not readable as Parquet"),
        (b"\x7fELF\x02\x01\x01\x00\x00", "not text"),
        (b'{"traceEvents": [', "not valid JSON"),
        (b'{"other": 1}', "no Chrome trace"),
        (b"[]", "no complete events"),
        (b"\x1f\x8b\x08\x00cut", "gzip"),
        (b"just words\nand more\n", "which column is time|no line"),
        (b"time,v\n", "no line has"),
        (b"time,v\n1,x\n2,y\n", "no column of numbers"),
        (b"a,b\n1,2\n", "which column is time"),
        (b"time,v\nnever,1\n", "has no times"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_line(tmp_path: Path, content: bytes, reason: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=reason) as caught:
        read(path)
    assert str(caught.value).startswith(str(path)) and "\n" not in str(caught.value)


def test_a_misspelt_column_gets_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("time,rx_bytes\n1,2\n2,3\n")
    with pytest.raises(BadInput, match="did you mean 'rx_bytes'"):
        read(path, None, (), ("rx_byte",))
