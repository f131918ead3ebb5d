"""Graphs of the zoo that ship with the package. The TensorFlow tests compare them with graphs that are built anew."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from driple.contracts.errors import BadInput
from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.contracts.zoo import DATASETS, IMAGE, MODELS, SEQUENCE, ordinary_size
from driple.pipeline.graph.public import OpGraph, stored_graph

P1, P2, P5 = (Setting.parse(f"cpu-p{servers}w2-1g") for servers in (1, 2, 5))
RING = Setting.parse("v100-p0w2-1g")


@pytest.fixture(scope="module")
def folder(checkout: Path) -> Path:
    return checkout / "zoo_graphs"


def workload(model: str, batch_size: int = 32) -> Workload:
    dataset = DATASETS[MODELS[model].datasets[0]]
    size = ordinary_size(MODELS[model], dataset)
    return Workload(
        model,
        dataset.name,
        batch_size,
        image_size=size if dataset.kind == IMAGE else None,
        sequence_length=size if dataset.kind == SEQUENCE else None,
    )


def graph(folder: Path, wanted: Workload, setting: Setting) -> OpGraph:
    found = stored_graph(wanted, setting, folder)
    assert found is not None
    return found


def test_every_model_of_the_zoo_is_stored_and_nothing_else(folder: Path) -> None:
    assert {path.name.removesuffix(".parquet") for path in folder.iterdir()} == set(MODELS)
    assert sum(path.stat().st_size for path in folder.iterdir()) < 3_000_000


def test_the_installed_files_are_found() -> None:
    assert stored_graph(workload("lenet"), P2) is not None


@pytest.mark.parametrize("model", ["lenet", "resnet20", "ncf", "nmt_small"])
def test_ops_and_edges_stay_and_sizes_grow_with_the_batch(folder: Path, model: str) -> None:
    one, two, three = (graph(folder, workload(model, batch), P2) for batch in (16, 32, 48))
    assert one.wiring == two.wiring == three.wiring
    assert np.array_equal(three.bytes - two.bytes, two.bytes - one.bytes)
    assert np.array_equal(three.flops - two.flops, two.flops - one.flops, equal_nan=True)
    assert one.bytes.sum() < two.bytes.sum()


def test_servers_share_what_a_worker_receives(folder: Path) -> None:
    one, two, five = (graph(folder, workload("resnet56"), setting) for setting in (P1, P2, P5))
    assert one.wiring == two.wiring == five.wiring
    assert one.bytes_received == two.bytes_received == five.bytes_received == one.bytes_busiest
    assert one.bytes_busiest > two.bytes_busiest > five.bytes_busiest
    assert one.bytes_received / 5 <= five.bytes_busiest < one.bytes_received / 4
    uneven = graph(folder, replace(workload("resnet56"), sharding="round_robin"), P5)
    assert uneven.bytes_busiest > five.bytes_busiest


def test_a_ring_has_the_variables_on_the_worker(folder: Path) -> None:
    ring = replace(workload("resnet20"), strategy="allreduce")
    assert "VariableV2" in graph(folder, ring, RING).ops
    assert "VariableV2" not in graph(folder, workload("resnet20"), P2).ops


@pytest.mark.parametrize(
    "other",
    [
        {"width": 0.5},
        {"optimiser": "adam"},
        {"image_size": 64},
        {"model": "mine.py:build"},
        {"batch_size": 2**25},
        {"dataset": "imagenet"},
    ],
)
def test_what_is_not_stored_is_none(folder: Path, other: dict[str, object]) -> None:
    assert stored_graph(replace(workload("resnet20"), **other), P2, folder) is None  # type: ignore[arg-type]


def test_no_folder_is_no_graph_and_a_damaged_file_is_bad_input(tmp_path: Path, folder: Path) -> None:
    assert stored_graph(workload("lenet"), P2, tmp_path) is None
    content = (folder / "lenet.parquet").read_bytes()
    table = pq.read_table(folder / "lenet.parquet")
    later = {"driple.schema": "zoo_graph", "driple.schema_version": "3"}
    pq.write_table(table.replace_schema_metadata(later), tmp_path / "later")
    pq.write_table(table.drop_columns(["place"]), tmp_path / "less")
    other = [(tmp_path / name).read_bytes() for name in ("later", "less")]
    for damaged in (content[:-9], content[:100], b"PAR1", *other):
        (tmp_path / "lenet.parquet").write_bytes(damaged)
        with pytest.raises(BadInput, match="not a stored graph of this release"):
            stored_graph(workload("lenet"), P2, tmp_path)
