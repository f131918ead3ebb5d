"""The output for people."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

from driple.agents.sampler.summary import ProgressLine, table
from driple.agents.sampler.ticker import Ticker


def column(refresh: float | None, held: bool | None = None, nulls: int = 0) -> dict[str, Any]:
    return {"nulls": nulls, "changes": 9, "refresh_ms": refresh, "held": held}


def test_the_table_tells_held_values_and_missing_ones() -> None:
    periods = {"median": 10.0, "p95": 10.2, "p99": 10.4, "max": 31.0}
    source = {"asked_period_ms": 10.0, "real_period_ms": periods, "reads": 100, "gaps": 2}
    none = dict.fromkeys(periods)
    summary = {
        "seconds": 10.0,
        "stopped_by": "duration",
        "priority": {"policy": "other", "refused": "real-time: Operation not permitted"},
        "loop": {
            "ticks": 1000,
            "missed_ticks": 3,
            "missed_pct": 0.3,
            "late_ticks": 4,
            "lateness_us": {"median": 70.0, "p95": 100.0, "p99": 300.0, "max": 9000.0},
            "cpu_share_pct": 1.5,
            "peak_memory_bytes": 23_000_000,
        },
        "sources": {
            "nic": {**source, "columns": {"nic_tx_bytes": column(1000.0, True), "nic_rx_bytes": column(10.0, False)}},
            "task_traffic": {**source, "real_period_ms": none, "columns": {"a": column(None, None, 100)}},
            "host": {**source, "columns": {"a": column(None), "b": column(None)}},
        },
        "tables": {"flows": {**source, "rows": 40, "most_flows": 2}},
    }
    text = table(summary, {Path("x.parquet"): 1000})
    assert "1000 ticks, 3 missed (0.3 %), 4 late; stopped by: duration" in text
    assert "priority other (real-time: Operation not permitted)" in text
    lines = {line.split()[0]: line for line in text.splitlines() if line}
    assert lines["nic"].endswith("2  nic_tx_bytes 1000 ms (held); nic_rx_bytes 10 ms")
    assert lines["task_traffic"].endswith("(no value)")
    assert lines["host"].endswith("  (hardly changed)")
    assert lines["flows"].endswith("40 rows of at most 2 flows")
    assert lines["x.parquet:"] == "x.parquet: 1000 rows"


def test_progress_is_one_line_that_goes_away() -> None:
    stream = io.StringIO()
    line = ProgressLine(stream)
    line(Ticker(100, lambda _: False), 2_500_000)
    line.clear()
    text = stream.getvalue()
    assert "\n" not in text
    assert "0 missed  2.5 MB" in text
    assert text.endswith("\r\033[K")
