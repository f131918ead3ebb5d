"""Predictions from graph files of driple, which contain the whole workload that they were written for."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from driple.contracts.json_values import to_plain
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.inspector.cli_predict import main
from driple.pipeline.graph.public import write_stored_graph

SETTING = "cpu-p1w2-1g"


def test_a_graph_file_with_newer_options_at_their_defaults_is_predicted(
    tmp_path: Path, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A worker writes its whole workload into its graph, with options that no inspector knows."""
    workload = Workload("resnet20", "cifar10", 32, image_size=32)
    path = tmp_path / "g.parquet"
    assert write_stored_graph(workload, Setting.parse(SETTING), path)
    table = pq.read_table(path)
    place = table.schema.get_field_index("workload")

    def saved(**changes: str) -> None:
        text = json.dumps({**to_plain(workload), **changes})
        pq.write_table(table.set_column(place, "workload", pa.array([text] * len(table))), path)

    words = ["--setting", SETTING, "--graph", str(path)]
    saved()
    assert main(words) == 0
    assert capsys.readouterr().out.startswith("resnet20 b32")
    saved(backend="nccl")
    assert main(words) == 0
    # The shipped inspectors are older than this feature: their rows did not have it.
    assert "nccl yes (training: no)" in capsys.readouterr().out
