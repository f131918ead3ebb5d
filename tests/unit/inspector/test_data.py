"""Reading a dataset: rows become examples."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import inspector_work as work
import numpy as np
import pyarrow.parquet as pq
import pytest

from driple.contracts.errors import BadInput, UnknownName
from driple.contracts.formats.dataset import COLUMNS as DATASET_COLUMNS
from driple.contracts.formats.dataset import OTHER_NETWORK_FLAGS, SIDES
from driple.contracts.metrics import COLUMNS
from driple.inspector.data import dataset_rows, graph_lists
from driple.inspector.data.dataset_rows import read_examples
from driple.inspector.data.examples import WORKLOAD, PublishedGraph, job_of, unmeasured, usable
from driple.inspector.data.workload_features import WORKLOAD_FEATURES, workload_feature_table, workload_features
from driple.pipeline.graph.public import OpGraph

RUNS = Path(__file__).parents[2] / "data" / "runs"


def test_the_columns_it_reads_are_columns_of_the_format() -> None:
    names = {column.name for column in DATASET_COLUMNS}
    assert names >= {*WORKLOAD, *dataset_rows._OTHERS, *dataset_rows._TRAFFIC, *graph_lists._FEATURE_LISTS, *COLUMNS}


def test_the_workers_of_a_run_are_one_example(tmp_path: Path) -> None:
    found = work.examples(tmp_path)
    assert len(found) == 5 * 3 * 3
    assert (found.setting, found.role, found.provenance) == (work.SETTING, "worker", "measured")
    first = found.items[0]
    rows = [row for row in work.zoo().rows if row["run_id"] == first.run_ids[0] and row["role"] == "worker"]
    assert first.rows == len(rows) == 2
    burst = [row["gpu_burst_s"] for row in rows]
    assert first.targets[0] == pytest.approx(sum(burst) / 2)
    assert np.isnan(first.targets[3:6]).all()
    assert first.workload["model"] == rows[0]["model"]
    assert first.received_bytes == rows[0]["bytes_received"]
    assert first.sent_bytes == rows[0]["bytes_sent"]


def test_repetitions_count_and_a_null_among_them_does_not(tmp_path: Path) -> None:
    dataset = work.zoo(families=("vgg",), batches=(8,), depths=(1,))
    again = [{**row, "run_id": "again", "repetition": 1, "gpu_burst_s": None} for row in dataset.rows]
    first = dataset.rows[1]["gpu_burst_s"], dataset.rows[2]["gpu_burst_s"]
    dataset.rows += again
    found = work.examples(tmp_path, dataset)
    assert len(found) == 1
    assert found.items[0].rows == 4
    assert found.items[0].targets[0] == pytest.approx(sum(first) / 2)
    assert found.items[0].run_ids == tuple(sorted({row["run_id"] for row in dataset.rows}))


def test_another_network_condition_is_another_example(tmp_path: Path) -> None:
    dataset = work.zoo(families=("vgg",), batches=(8,), depths=(1,))
    dataset.rows += [{**row, "run_id": "slow", "network_rate_mbit": 100.0} for row in dataset.rows]
    found = work.examples(tmp_path, dataset)
    assert sorted(str(item.workload["network_rate_mbit"]) for item in found.items) == ["100.0", "None"]
    assert found.items[0].graph is found.items[1].graph


@pytest.mark.parametrize("flag", OTHER_NETWORK_FLAGS)
def test_runs_on_other_links_are_no_repetitions(tmp_path: Path, flag: str) -> None:
    dataset = work.zoo(families=("vgg",), batches=(8,), depths=(1,))
    dataset.rows += [{**row, "run_id": "other", "repetition": 1, "flags": [flag]} for row in dataset.rows]
    found = work.examples(tmp_path, dataset)
    assert sorted(item.run_ids == ("other",) for item in found.items) == [False, True]
    assert [item.rows for item in found.items] == [2, 2]


def test_another_runtime_is_another_example(tmp_path: Path) -> None:
    dataset = work.zoo(families=("vgg",), batches=(8,), depths=(1,))
    runtimes = {
        "ring": {"framework": "torch", "backend": "gloo", "topology": "ring"},
        "star": {"framework": "torch", "backend": "gloo", "topology": "star"},
        "mpi": {"framework": "torch", "backend": "mpi", "topology": "ring"},
    }
    first = list(dataset.rows)
    dataset.rows += [{**row, **runtime, "run_id": name} for name, runtime in runtimes.items() for row in first]
    found = work.examples(tmp_path, dataset)
    features = [dict(zip(WORKLOAD_FEATURES, workload_features(item), strict=True)) for item in found.items]
    names = ("is_torch", "is_mpi", "is_star", "is_tree")
    assert [tuple(int(one[name]) for name in names) for one in features] == [
        *((0, 0, 0, 0), (1, 1, 0, 0), (1, 0, 0, 0), (1, 0, 1, 0))  # by run: the first one, mpi, ring, star
    ]
    keys = [job_of(item) for item in found.items]
    assert len(set(keys)) == 4
    # Keys that inspectors store stay those of workloads that had no choice.
    plain = dataclasses.replace(found.items[0], workload={**found.items[0].workload, "backend": "grpc"})
    assert job_of(plain) == keys[0]


def test_files_from_before_there_was_a_choice_of_runtime(tmp_path: Path) -> None:
    """Columns that are null in every row are left out, as in files of earlier releases."""
    before = work.examples(tmp_path)
    assert "backend" not in pq.read_schema(tmp_path / f"{work.SETTING}.parquet").names
    work.write(work.zoo(), tmp_path, change=lambda row: row.update(backend="grpc"))
    assert "backend" in pq.read_schema(tmp_path / f"{work.SETTING}.parquet").names
    after = read_examples(tmp_path, work.SETTING)
    assert [job_of(item) for item in after.items] == [job_of(item) for item in before.items]
    tables = [workload_feature_table(each.items) for each in (before, after)]
    np.testing.assert_array_equal(*tables)


def test_the_graph_is_the_one_that_was_written(tmp_path: Path) -> None:
    found = work.examples(tmp_path, work.zoo(families=("vgg",), batches=(16,), depths=(2,)))
    graph, wanted = found.items[0].graph, work.chain(2, 2.0)
    assert isinstance(graph, OpGraph)
    assert graph.ops == wanted.ops
    np.testing.assert_array_equal(graph.bytes, wanted.bytes)
    np.testing.assert_array_equal(graph.flops, wanted.flops)
    np.testing.assert_array_equal(graph.edges, wanted.edges)


def test_servers_are_read_though_their_graph_may_stand_in_another_row(tmp_path: Path) -> None:
    dataset = work.zoo()
    assert dataset.rows[0]["role"] == "ps"
    workers = work.examples(tmp_path)
    servers = read_examples(tmp_path, work.SETTING, "ps")
    assert [item.graph_key for item in servers.items] == [item.graph_key for item in workers.items]
    assert {item.rows for item in servers.items} == {1}
    assert np.isnan(servers.targets()[:, 0]).all()
    assert not np.isnan(servers.targets()[:, 6]).any()


def test_a_file_may_be_named_and_a_setting_spelled_as_in_the_paper(tmp_path: Path) -> None:
    path = work.write(work.zoo(), tmp_path)
    assert len(read_examples(path, "CPU-P1w2/ho-1GbE")) == len(read_examples(tmp_path, work.SETTING))


def test_sides_follow_the_columns(tmp_path: Path) -> None:
    found = work.examples(tmp_path)
    families = {side: {item.workload["family"] for item in found.side("architecture", side).items} for side in SIDES}
    assert families == {"train": {"vgg", "resnet", "inception"}, "val": {"densenet"}, "test": {"alexnet"}}
    batches = {side: {item.workload["batch_size"] for item in found.side("random", side).items} for side in SIDES}
    assert batches == {"train": {32}, "val": {8}, "test": {16}}
    assert found.side("random", "val").sha256 == found.sha256
    with pytest.raises(UnknownName):
        found.side("architecture", "validation")
    with pytest.raises(UnknownName):
        found.side("family", "train")


def test_the_recipe_is_that_of_the_file(tmp_path: Path) -> None:
    found = work.examples(tmp_path)
    recipe = found.recipe("proportional", seed=3)
    assert (recipe.policy, recipe.seed) == ("proportional", 3)
    assert sum(recipe.frequency.values()) == pytest.approx(1)
    graph = found.items[0].graph
    assert isinstance(graph, OpGraph)
    assert len(recipe.group(graph).features) == recipe.batches.groups_of(len(graph.ops))


def test_published_rows_are_workers_and_each_its_own_example(tmp_path: Path) -> None:
    dataset = work.published(12)
    dataset.rows.append({**dataset.rows[0], "run_id": "published-again"})
    found = work.examples(tmp_path, dataset)
    assert len(found) == 13
    assert found.provenance == "published"
    graph = found.items[0].graph
    assert isinstance(graph, PublishedGraph)
    wanted = work.groups_of(5, 0)
    np.testing.assert_array_equal(graph.features[:, 1], wanted["group_bytes"])
    np.testing.assert_array_equal(graph.features[:, 0], wanted["group_frequency"])
    assert found.frequency["Conv2D"] > 0
    assert found.batches.largest[-1] == max(
        round(item.graph.features[:, 2].sum()) for item in found.items if isinstance(item.graph, PublishedGraph)
    )
    with pytest.raises(BadInput, match="no rows of role ps"):
        read_examples(tmp_path, work.SETTING, "ps")


def test_a_dataset_of_real_runs(tmp_path: Path) -> None:
    from driple.pipeline.cli import main

    assert main([str(RUNS), "--output", str(tmp_path), "--jobs", "1"]) == 0
    found = read_examples(tmp_path, "cpu-p1w2-1g")
    assert sorted(item.workload["model"] for item in found.items) == ["lenet", "nmt_small", "resnet20"]
    assert (usable(found, least=3) == [True] * 3 + [False] * 3 + [True] * 6).all()
    for item in found.items:
        assert item.rows == 2
        assert item.received_bytes is not None
        assert item.received_bytes > 0
    assert len(read_examples(tmp_path, "cpu-p1w2-1g", "ps")) == 3


def test_files_from_before_traffic_was_written(tmp_path: Path) -> None:
    work.rewrite(work.write(work.zoo(), tmp_path), bytes_received=None, bytes_sent=None)
    found = read_examples(tmp_path, work.SETTING)
    assert {item.received_bytes for item in found.items} == {None}
    assert {item.sent_bytes for item in found.items} == {None}


def test_a_workload_that_did_not_run() -> None:
    found = unmeasured(work.chain(2), {"model": "mine", "batch_size": 4})
    assert found.workload["batch_size"] == 4
    assert set(found.workload) == set(WORKLOAD)
    assert found.received_bytes is None
    assert np.isnan(found.targets).all()
    with pytest.raises(UnknownName, match="batch_size"):
        unmeasured(work.chain(2), {"batch-size": 4})


@pytest.mark.parametrize(
    ("features", "edges"),
    [
        (np.zeros((0, 3)), np.zeros((0, 2), dtype=np.int64)),
        (np.zeros((3, 2)), np.zeros((0, 2), dtype=np.int64)),
        (np.zeros((3, 3)), np.array([[0, 3]])),
        (np.zeros((3, 3)), np.array([0, 1])),
    ],
)
def test_a_published_graph_is_checked(features: Any, edges: Any) -> None:
    with pytest.raises(BadInput):
        PublishedGraph(features, edges)
