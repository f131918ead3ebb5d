"""Predictions next to measured values of the same workload."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import driple
from driple.inspector.cli_predict import main

SETTING = "cpu-p2w2-1g"


@pytest.fixture(autouse=True)
def in_the_checkout(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(checkout)


def test_measured_values_are_the_means_of_the_rows_of_the_workload(checkout: Path) -> None:
    (one,) = driple.predict("resnet20", setting=SETTING, batch_size=32, measured="datasets")
    table = pq.read_table(checkout / "datasets" / f"{SETTING}.parquet").to_pandas()
    same = (table.model == "resnet20") & (table.batch_size == 32) & (table.width == 1) & (table.optimiser == "momentum")
    rows = table[same & (table["update"] == "sync") & (table.role == "worker") & (table.image_size == 32)]
    assert len(rows) == 2  # two workers
    assert one.measured["step_s"] == pytest.approx(rows.step_s.mean())
    assert one.measured["net_rx_burst_s"] == pytest.approx(rows.net_rx_burst_s.mean())
    assert "gpu_mem_burst_s" not in one.measured  # null in every row


def test_rows_under_another_network_condition_are_another_workload(checkout: Path, tmp_path: Path) -> None:
    table = pq.read_table(checkout / "datasets" / f"{SETTING}.parquet")
    step, loss = (table.schema.get_field_index(name) for name in ("step_s", "network_loss_pct"))
    slow = table.set_column(step, "step_s", pa.array([100.0] * len(table)))
    lossy = slow.set_column(loss, "network_loss_pct", pa.array([5.0] * len(table)))
    pq.write_table(pa.concat_tables([table, lossy]), tmp_path / f"{SETTING}.parquet")
    means = [
        driple.predict("resnet20", setting=SETTING, batch_size=32, measured=folder)[0].measured["step_s"]
        for folder in ("datasets", tmp_path)
    ]
    assert means[1] == means[0]


def test_the_command_prints_both_and_their_difference(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["resnet20", "--setting", SETTING, "--batch-size", "32", "--measured", "datasets"]
    assert main(words) == 0
    text = capsys.readouterr().out
    (line,) = [line for line in text.splitlines() if line.startswith("step time  ") and line.endswith("%")]
    assert main([*words, "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["predictions"]
    difference = 100 * (found["step_time_s"] / found["measured"]["step_s"] - 1)
    assert line.split()[-2] == f"{difference:+.0f}"
    assert main([*words, "--update", "sync", "async"]) == 0
    assert capsys.readouterr().out.count("predicted next to measured") == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["resnet20", "--batch-size", "17"], "no row of this workload (model resnet20, dataset cifar10, batch_size 17"),
        (["resnet20", "--measured", "nowhere"], "no such dataset"),
        (["resnet20", "--measured", "README.md"], "README.md"),
        (["--graph", "tests/data/graphs/tiny.pb"], "the graph file names no workload"),
    ],
)
def test_what_was_not_measured_is_one_line(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--measured", "datasets", "--setting", SETTING, *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 2.5}, "batch_size: expected whole numbers, got 2.5"),
        ({"batch_size": "a"}, "batch_size: expected whole numbers, got 'a'"),
        ({"batch_size": True}, "batch_size: expected whole numbers, got True"),
        ({"batch_size": []}, "batch_size: expected at least one value"),
        ({"batch_size": 0}, "batch size: expected 1 or more, got 0"),
        ({"setting": []}, "setting: expected at least one value"),
        ({"setting": None}, "setting: expected at least one"),
        ({"width": "x"}, "width: expected a number above 0, got 'x'"),
        ({"model": ["lenet", "resnet56"]}, "model: expected one name"),
    ],
)
def test_arguments_from_python_are_checked(arguments: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"model": "lenet", "setting": SETTING, **arguments}
    with pytest.raises(driple.BadInput, match=re.escape(message)):
        driple.predict(given.pop("model"), **given)


def test_numbers_of_numpy_are_numbers() -> None:
    several = driple.predict("lenet", setting=SETTING, batch_size=np.array([8, 16]))
    assert [one.workload["batch_size"] for one in several] == [8, 16]
    eight: Any = np.int64(8)
    (one,) = driple.predict("lenet", setting=SETTING, batch_size=eight)
    assert one.metrics["net_rx_idle_s"] == pytest.approx(several[0].metrics["net_rx_idle_s"], rel=1e-4)
