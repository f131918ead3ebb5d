"""The start-up of a job: the law of measured runs, from datasets that the pipeline wrote."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import driple
from driple.inspector.time.start_up import StartRow, read_start_rows, start_up_law

FIVE = ((100, 1.1), (400, 1.4), (1000, 2.0), (2000, 3.0), (3000, 4.0))
"""Ops and seconds of 1 s and 1 ms for each op."""


def row(ops: int, seconds: float, setting: str = "cpu-p1w2-1g", started_by: str = "warm", **more: str) -> StartRow:
    return StartRow(
        setting=setting, framework=more.get("framework", "tensorflow"), started_by=started_by, ops=ops, seconds=seconds
    )


def test_the_law_finds_both_numbers() -> None:
    law = start_up_law([row(*one) for one in FIVE], "cpu-p1w2-1g", "tensorflow")
    assert law is not None
    assert (law.fixed_s, law.per_op_s) == pytest.approx((1.0, 1e-3))
    assert law.error_pct == pytest.approx(0, abs=1e-6) and law.warm and law.runs == 5
    assert law.of(5000).seconds == pytest.approx(6.0)
    assert law.of(1).source == (
        "by 1 s and 1 ms for each op, fitted to 5 measured runs of cpu-p1w2-1g (off by 0 %), which had TensorFlow"
        " loaded already"
    )


def test_numbers_of_the_law_are_not_negative() -> None:
    falling = start_up_law([row(100, 4.0), row(1000, 2.0)], "", "tensorflow")
    assert falling is not None and falling.per_op_s == 0 and 2.0 < falling.fixed_s < 4.0
    steep = start_up_law([row(100, 0.1), row(1000, 2.0)], "", "tensorflow")
    assert steep is not None and steep.fixed_s == 0 and 1e-3 < steep.per_op_s < 2e-3
    single = start_up_law([row(100, 1.5)], "", "tensorflow")
    assert single is not None and single.of(10_000).seconds == pytest.approx(1.5)
    same = start_up_law([row(100, 1.0), row(100, 1.0)], "", "tensorflow")
    assert same is not None and (same.fixed_s, same.per_op_s) == pytest.approx((1.0, 0.0))


def test_runs_of_the_setting_and_with_a_cold_start_come_first() -> None:
    own = [row(*one) for one in FIVE]
    others = [row(ops, 10 * seconds, setting="cpu-p2w2-1g") for ops, seconds in FIVE]
    law = start_up_law([*own, *others], "cpu-p1w2-1g", "tensorflow")
    assert law is not None and law.settings == ("cpu-p1w2-1g",) and law.fixed_s == pytest.approx(1.0)
    few = start_up_law([*own[:4], *others], "cpu-p1w2-1g", "tensorflow")
    assert few is not None and few.settings == ("cpu-p1w2-1g", "cpu-p2w2-1g") and few.runs == 9
    cold = start_up_law([*own, row(100, 8.0, started_by="python")], "cpu-p1w2-1g", "tensorflow")
    assert cold is not None and not cold.warm and cold.runs == 1
    assert "loaded" not in cold.of(1).source
    assert start_up_law(own, "cpu-p1w2-1g", "torch") is None
    assert start_up_law([], "cpu-p1w2-1g", "tensorflow") is None


def test_rows_are_those_of_a_dataset_of_real_runs(checkout: Path, tmp_path: Path) -> None:
    driple.build_dataset(checkout / "tests/data/runs", output=tmp_path)
    (path,) = tmp_path.glob("*.parquet")
    rows = read_start_rows(tmp_path)
    assert {(one.setting, one.framework, one.started_by) for one in rows} == {("cpu-p1w2-1g", "tensorflow", "warm")}
    assert sorted(one.ops for one in rows) == [84, 372, 1380]
    assert all(1.0 < one.seconds < 4.0 for one in rows)  # one of each run: the mean of both workers
    assert read_start_rows(tmp_path, ["cpu-p1w2-1g"]) == rows
    assert read_start_rows(tmp_path, ["cpu-p2w2-1g"]) == ()
    shutil.copy(path, tmp_path / "mine.parquet")  # not a setting
    (tmp_path / "cpu-p9w9-1g.parquet").write_bytes(b"PAR1 and then nothing")
    assert read_start_rows(tmp_path) == rows
    assert read_start_rows(tmp_path / "nowhere") == ()


def test_datasets_of_earlier_releases_tell_nothing(checkout: Path) -> None:
    older = [name for name in ("cpu-p1w1-1g", "cpu-p1w2-1g", "cpu-p2w2-1g") if _is_older(checkout, name)]
    assert read_start_rows(checkout / "datasets", older) == ()


def _is_older(checkout: Path, setting: str) -> bool:
    import pyarrow.parquet as pq

    return "start_s" not in pq.read_schema(checkout / "datasets" / f"{setting}.parquet").names
