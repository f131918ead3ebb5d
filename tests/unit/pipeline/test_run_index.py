"""The list of runs below a folder."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from driple.contracts.errors import BadInput
from driple.contracts.manifest import FAILED, SEALED, Manifest
from driple.pipeline.traces.run_index import runs


@pytest.fixture
def traces(checkout: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkout / "tests/data/runs", tmp_path / "traces" / "e")).parent


def test_sealed_runs_are_listed_and_others_on_request(traces: Path) -> None:
    first, second, third = sorted((traces / "e").iterdir())
    manifest = Manifest.read(first / "run.json")
    replace(manifest, status=FAILED, failure="out of memory").write(first / "run.json")
    (second / "run.json").write_text("{")
    found = runs(traces)
    assert [(run.id, run.status, run.path) for run in found] == [(third.name, SEALED, third)]
    assert (str(found[0].setting), found[0].workload.model) == ("cpu-p1w2-1g", "resnet20")
    assert "Manifest(" not in repr(found[0])  # it would fill the screen
    assert found.unreadable == ((second, "run.json: not valid JSON (cut short?)"),)
    assert [run.status for run in runs(traces, include_unsealed=True)] == [FAILED, SEALED]


def test_the_list_is_a_table_for_pandas(traces: Path) -> None:
    frame = runs(str(traces)).to_frame()
    assert len(frame) == 3
    assert frame["setting"].unique().tolist() == ["cpu-p1w2-1g"]
    assert sorted(frame["model"]) == ["lenet", "nmt_small", "resnet20"]
    assert frame["network_as_specified"].all()
    (traces / "empty").mkdir()
    assert len(runs(traces / "empty").to_frame()) == 0


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such folder"):
        runs(tmp_path / "nowhere")
