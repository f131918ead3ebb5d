"""Run directories: real ones load, and whatever is wrong with one is said."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driple.contracts.errors import CorruptRun
from driple.contracts.metrics import COLUMNS
from driple.pipeline.bursts.task_metrics import resource_series, step_time_s, task_metrics
from driple.pipeline.cli import main as dataset_main
from driple.pipeline.cli_metrics import main as metrics_main
from driple.pipeline.cli_report import main as report_main
from driple.pipeline.traces.load_run import device_periods, load_run, task_traffic


@pytest.fixture
def real(checkout: Path) -> Path:
    return next((checkout / "tests/data/runs").glob("*resnet20*"))


@pytest.fixture
def copy(real: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(real, tmp_path / "experiment" / real.name))


def edited(run: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    path = run / "run.json"
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def resealed(run: Path, name: str) -> None:
    digest = hashlib.sha256((run / name).read_bytes()).hexdigest()
    edited(run, lambda value: value["checksums"].update({name: digest}))


def rewritten(run: Path, name: str, change: Callable[[pa.Table], pa.Table]) -> None:
    pq.write_table(change(pq.read_table(run / name)), run / name)
    resealed(run, name)


def misnamed(path: Path, name: bytes) -> None:
    """Rewrites a Parquet file with a column name that is not UTF-8."""
    table = pq.read_table(path)
    pq.write_table(table, path, store_schema=False)
    path.write_bytes(path.read_bytes().replace(name, b"\xff" + name[1:]))


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("trace/worker-0.parquet", b"nic_tx_bytes"),
        ("trace/ps-0.parquet", b"t_mono_ns"),
        ("steps/worker-0.parquet", b"loss"),
    ],
)
def test_a_column_name_that_is_not_utf_8_is_said_in_one_line(
    copy: Path, name: str, column: bytes, capsys: pytest.CaptureFixture[str]
) -> None:
    misnamed(copy / name, column)
    resealed(copy, name)
    with pytest.raises(CorruptRun, match="not readable as Parquet"):
        load_run(copy)
    for main, arguments in (
        (metrics_main, [str(copy)]),
        (report_main, [str(copy)]),
        (metrics_main, [str(copy / name)]),
    ):
        code = main(arguments)
        captured = capsys.readouterr()
        if main is report_main:
            assert code == 0 and "not readable as Parquet" in (copy / "report.html").read_text()
        else:
            assert code == 2 and captured.err.count("\n") == 1 and "not readable as Parquet" in captured.err
    assert dataset_main([str(copy), "--output", str(copy.parent / "out")]) == 1
    assert "not readable as Parquet" in capsys.readouterr().out


def test_a_column_of_text_where_numbers_are_expected_is_said_in_one_line(copy: Path) -> None:
    rewritten(copy, "trace/ps-0.parquet", lambda t: t.set_column(0, "t_mono_ns", pa.array(["soon"] * len(t))))
    with pytest.raises(CorruptRun, match="column 't_mono_ns' is of type string"):
        load_run(copy)


def test_a_real_run_loads_with_all_tasks_on_one_timeline(real: Path) -> None:
    run = load_run(real)
    assert list(run.tasks) == ["ps:0", "worker:0", "worker:1"]
    assert run.tasks["ps:0"].steps is None
    for trace in run.tasks.values():
        assert trace.readings["nic_rx_bytes"].t_s[0] < trace.window.start_s < trace.window.end_s
        assert trace.readings["nic_rx_bytes"].value.dtype.kind == "u"
    starts = [run.tasks[f"worker:{i}"].window.start_s for i in (0, 1)]
    assert abs(starts[0] - starts[1]) < 0.05


def gpu(method: Any = "samples", median_ms: Any = 20.0) -> dict[str, Any]:
    return {
        "method": {"gpu_util_pct": method, "gpu_mem_util_pct": "gauge"},
        "sample_period_ms": {"median_ms": median_ms},
    }


def test_a_gpu_that_stamps_its_samples_says_its_period() -> None:
    sources = {"gpu0": gpu(), "gpu1": gpu(median_ms=170), "gpu2": gpu("gauge"), "gpu3": gpu(median_ms=0), "host": {}}
    assert device_periods({"sources": sources}) == {"gpu_util_pct": 0.02, "gpu_util_pct_1": 0.17}


@pytest.mark.parametrize(
    "sources", [None, [], {"gpu0": None}, {"gpu0": {"method": "samples"}}, {"gpu0": gpu(median_ms="x")}]
)
def test_metadata_that_says_nothing_of_a_device(sources: Any) -> None:
    assert device_periods({"sources": sources}) == {} == device_periods(None)


def test_the_period_of_a_device_gets_to_the_series_of_a_run(copy: Path) -> None:
    def with_gpu(table: pa.Table) -> pa.Table:
        metadata = json.loads(table.schema.metadata[b"driple"])
        metadata["sources"]["gpu0"] = gpu()
        busy = table.append_column("gpu_util_pct", pa.array([50.0] * len(table)))
        return busy.replace_schema_metadata({"driple": json.dumps(metadata)})

    rewritten(copy, "trace/worker-0.parquet", with_gpu)
    readings = load_run(copy).tasks["worker:0"].readings
    assert readings["gpu_util_pct"].device_s == 0.02 and readings["nic_rx_bytes"].device_s is None


def test_warm_up_is_cut_at_a_step(real: Path) -> None:
    run = load_run(real)
    steps = run.tasks["worker:0"].steps
    assert steps is not None
    assert steps.step[0] == run.manifest.run.measurement.warmup_steps
    assert run.tasks["worker:0"].window.start_s == steps.start_s[0]
    series = resource_series(run, "worker:0")["net_rx"]
    assert series is not None
    assert steps.start_s[0] <= series.t_s[0] and series.t_s[-1] <= steps.end_s[-1]


def test_the_12_targets_come_in_their_order_and_what_is_not_there_is_none(real: Path) -> None:
    run = load_run(real)
    found = task_metrics(run, "worker:0").targets
    assert tuple(found) == COLUMNS
    assert [name for name, value in found.items() if value is None] == [c for c in COLUMNS if c.startswith("gpu_mem")]
    assert resource_series(run, "worker:0")["gpu_mem"] is None
    assert step_time_s(run, "ps:0") == pytest.approx(step_time_s(run, "worker:0"), rel=0.02)


def test_a_hosts_clock_offset_moves_nothing(copy: Path) -> None:
    """The same run, had one host's clock been an hour ahead."""
    before = task_metrics(load_run(copy), "worker:1")
    hour = 3600 * 10**9

    def shift(table: pa.Table) -> pa.Table:
        for name in table.column_names:
            if name.endswith("mono_ns"):
                moved = pa.array(table[name].to_numpy() + hour)
                table = table.set_column(table.column_names.index(name), name, moved)
        return table

    host = next(t["host"] for t in json.loads((copy / "run.json").read_text())["tasks"] if t["task"] == "worker:1")
    for name in ("trace/worker-1.parquet", "steps/worker-1.parquet"):
        rewritten(copy, name, shift)

    def ahead(value: dict[str, Any]) -> None:
        for probe in value["clocks"][host].values():
            probe["host_ns"] += hour
            probe["offset_ns"] += hour

    edited(copy, ahead)
    after = task_metrics(load_run(copy), "worker:1")
    assert after.targets == pytest.approx(before.targets)


def break_checksum(run: Path) -> None:
    with (run / "trace/worker-0.parquet").open("ab") as stream:
        stream.write(b"x")


def truncate(run: Path) -> None:
    path = run / "trace/worker-0.parquet"
    path.write_bytes(path.read_bytes()[:-2000])
    resealed(run, "trace/worker-0.parquet")


def no_steps(run: Path) -> None:
    rewritten(run, "steps/worker-0.parquet", lambda table: table.slice(0, 1))


def half_a_trace(run: Path) -> None:
    rewritten(run, "trace/worker-0.parquet", lambda table: table.slice(0, table.num_rows * 2 // 3))


def other_schema(run: Path) -> None:
    rewritten(
        run,
        "trace/worker-0.parquet",
        lambda t: t.replace_schema_metadata({"driple": json.dumps({"schema_version": 9})}),
    )


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda run: (run / "run.json").unlink(), "No such file"),
        (lambda run: (run / "run.json").write_text("{"), "not valid JSON"),
        (lambda run: edited(run, lambda v: v.update(schema_version=7)), "schema version 7"),
        (lambda run: edited(run, lambda v: v.update(status="failed", failure="worker:0 died")), "worker:0 died"),
        (lambda run: edited(run, lambda v: v["checksums"].update({"../x": "0"})), "outside the run's folder"),
        (lambda run: edited(run, lambda v: v["clocks"].clear()), "no clock of host"),
        (
            lambda run: edited(run, lambda v: [c["before"].update(bound_ns=10**9) for c in v["clocks"].values()]),
            "uncertain by 1000 ms",
        ),
        (lambda run: (run / "trace/worker-0.parquet").unlink(), "trace/worker-0.parquet: missing"),
        (break_checksum, "changed since it was sealed"),
        (truncate, "not readable as Parquet"),
        (no_steps, "did no step after warm-up"),
        (half_a_trace, "no samples in"),
        (other_schema, "schema version 9"),
    ],
)
def test_a_broken_run_is_refused_with_its_reason(copy: Path, damage: Callable[[Path], Any], reason: str) -> None:
    damage(copy)
    with pytest.raises(CorruptRun, match=reason) as caught:
        load_run(copy)
    assert "\n" not in str(caught.value)


def test_flows_of_a_task_sum_up_whenever_they_come_and_go() -> None:
    t = np.array([1, 1, 2, 2, 2, 3, 3])
    flow = np.array([7, 8, 7, 8, 9, 7, 9])
    sent = np.array([100, 50, 150, 50, 10, 150, 30])
    reads, tx, _ = task_traffic(t, flow, sent, np.zeros(7))
    assert reads.tolist() == [1, 2, 3]
    assert tx.tolist() == [0, 60, 80]  # 50 of flow 7 and all of the new one; then 20 more
