"""Runs on hosts with and without a share of the processors: their rows never share a file."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from driple.contracts.errors import BadInput
from driple.contracts.formats.dataset import SHARE_FLAG, check_one_share
from driple.contracts.manifest import Manifest
from driple.inspector.data.dataset_rows import read_examples
from driple.pipeline.datasets.build import build_dataset
from driple.pipeline.datasets.dataset_file import read

pq = pytest.importorskip("pyarrow.parquet")
pa = pytest.importorskip("pyarrow")
pytest.importorskip("joblib")

RUN = "cpu-p1w2-1g-lenet-b8-s32-momentum-sync-c365236547d4"
SETTING = "cpu-p1w2-1g"


def copy_with_share(checkout: Path, folder: Path, share: float | None, why_not: str | None = None) -> Path:
    """The committed run as if its hosts had a share."""
    source = checkout / "tests/data/runs" / RUN
    found = Manifest.read(source / "run.json")
    spec = replace(found.run, cores_per_host=share)
    target = folder / spec.id
    shutil.copytree(source, target)
    job = json.loads((target / "job.json").read_text())
    job["run"]["cores_per_host"] = share
    (target / "job.json").write_text(json.dumps(job))
    checksums = {name: value for name, value in found.checksums.items() if name != "job.json"}
    replace(found, run=spec, run_id=spec.id, share_not_as_asked=why_not, checksums=checksums).write(target / "run.json")
    return folder


def test_a_row_has_the_share_and_the_file_of_others_refuses_it(checkout: Path, tmp_path: Path) -> None:
    traces = copy_with_share(checkout, tmp_path / "with", 0.45)
    without = copy_with_share(checkout, tmp_path / "without", None)
    assert not build_dataset(traces, output=tmp_path / "out", jobs=1).set_aside
    assert {row["cores_per_host"] for row in read(tmp_path / "out" / f"{SETTING}.parquet", SETTING).rows} == {0.45}
    for roots in (without, [traces, without]):
        with pytest.raises(BadInput, match="rows without and with 0.45 cores_per_host in one dataset"):
            build_dataset(roots, output=tmp_path / "out", jobs=1)
    build_dataset(without, output=tmp_path / "other", jobs=1)
    names = pq.read_schema(tmp_path / "other" / f"{SETTING}.parquet").names
    assert "cores_per_host" not in names  # files without shares keep their bytes


def test_a_run_without_the_share_that_it_asks_for_is_left_out(checkout: Path, tmp_path: Path) -> None:
    traces = copy_with_share(checkout, tmp_path / "traces", 0.45, "no control groups")
    result = build_dataset(traces, output=tmp_path / "out", jobs=1)
    (left,) = result.set_aside
    assert "no control groups" in left.reason
    build_dataset(traces, output=tmp_path / "out", jobs=1, include_loopback=True)
    for row in read(tmp_path / "out" / f"{SETTING}.parquet", SETTING).rows:
        assert SHARE_FLAG in row["flags"]


def test_no_inspector_learns_from_both(checkout: Path, tmp_path: Path) -> None:
    table = pq.read_table(checkout / "datasets" / "cpu-p1w1-1g.parquet")
    shares = pa.array([0.45] + [None] * (len(table) - 1), type=pa.float64())
    pq.write_table(table.append_column("cores_per_host", shares), tmp_path / "cpu-p1w1-1g.parquet")
    with pytest.raises(BadInput, match="never mixed"):
        read_examples(tmp_path, "cpu-p1w1-1g")


def test_one_share_is_no_fault() -> None:
    check_one_share([0.5, 0.5])
    check_one_share([None])
    check_one_share([])
