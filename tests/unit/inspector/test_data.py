"""Reading a dataset: rows become examples, and what cannot be learned from is refused in one line."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import inspector_work as work
import numpy as np
import pytest

from driple.contracts.errors import BadInput, UnknownName
from driple.contracts.metrics import COLUMNS
from driple.inspector import data, graphlists
from driple.inspector.data import PublishedGraph, enough, read_examples, unmeasured, usable
from driple.inspector.examples import SIDES, WORKLOAD
from driple.pipeline import dataset as files
from driple.pipeline.graph import OpGraph

RUNS = Path(__file__).parents[2] / "data" / "runs"


def refused(folder: Path, role: str = "worker") -> str:
    with pytest.raises(BadInput) as caught:
        read_examples(folder, work.SETTING, role)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_the_names_are_those_of_the_pipeline() -> None:
    assert data._SCHEMA.decode() == files.SCHEMA
    assert data._SCHEMA_VERSION.decode() == str(files.SCHEMA_VERSION)
    assert (graphlists.OPS, graphlists.GROUPS, data.PUBLISHED, data.SUFFIX) == (
        files.OPS,
        files.GROUPS,
        files.PUBLISHED,
        files.SUFFIX,
    )
    names = {column.name for column in files.COLUMNS}
    assert names >= {*WORKLOAD, *data._OTHERS, *data._TRAFFIC, *graphlists.LISTS, *COLUMNS}


def test_the_workers_of_a_run_are_one_example(tmp_path: Path) -> None:
    found = work.examples(tmp_path)
    assert len(found) == 5 * 3 * 3
    assert (found.setting, found.role, found.provenance) == (work.SETTING, "worker", "measured")
    first = found.items[0]
    rows = [row for row in work.zoo().rows if row["run_id"] == first.run_ids[0] and row["role"] == "worker"]
    assert first.rows == len(rows) == 2
    burst = [row["gpu_burst_s"] for row in rows]
    assert first.targets[0] == pytest.approx(sum(burst) / 2)
    assert first.noise[0] == pytest.approx((max(burst) - min(burst)) / sum(burst))
    assert np.isnan(first.targets[3:6]).all()
    assert np.isnan(first.noise[3:6]).all()
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
    assert "no rows of role ps" in refused(tmp_path, "ps")


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


def test_a_dataset_that_is_not_there(tmp_path: Path) -> None:
    work.write(work.zoo(), tmp_path)
    with pytest.raises(BadInput) as caught:
        read_examples(tmp_path, "cpu-p1w2-10g")
    text = str(caught.value)
    assert f"has {work.SETTING}" in text
    assert f"did you mean {work.SETTING}?" in text
    assert "driple-run" in text
    assert "driple-build-dataset traces/" in text
    with pytest.raises(BadInput, match="no such dataset .* has none"):
        read_examples(tmp_path.parent, "cpu-p1w2-10g")
    with pytest.raises(BadInput, match="no such dataset"):
        read_examples(tmp_path / "nowhere", work.SETTING)
    with pytest.raises(BadInput, match="no such dataset"):
        read_examples(tmp_path / "nowhere.parquet", work.SETTING)
    (tmp_path / "a100-p1w2-1g.parquet").mkdir()
    with pytest.raises(BadInput, match="not a regular file"):
        read_examples(tmp_path, "a100-p1w2-1g")


def test_names_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="setting"):
        read_examples(tmp_path, "somewhere")
    with pytest.raises(UnknownName, match="role"):
        read_examples(tmp_path, work.SETTING, "chief")


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1" + b"x" * 100 + b"PAR1", b"hello, world"])
def test_a_file_that_is_no_parquet(tmp_path: Path, content: bytes) -> None:
    (tmp_path / f"{work.SETTING}.parquet").write_bytes(content)
    assert "not a dataset that can be read" in refused(tmp_path)


def test_a_file_cut_short_or_broken_inside(tmp_path: Path) -> None:
    path = work.write(work.zoo(), tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    assert "not a dataset that can be read" in refused(tmp_path)
    path.write_bytes(whole[:200] + b"\0" * 4000 + whole[4200:])
    assert "not a dataset that can be read" in refused(tmp_path)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"driple_schema": b"trace"}, "not a dataset of driple"),
        ({"driple_schema_version": b"99"}, "schema version '99', this release reads 1"),
        ({"driple_setting": "v100-p1w2-pcie"}, "holds 'v100-p1w2-pcie' and not cpu-p1w2-1g"),
        ({"driple_setting": b"{"}, "driple.setting in its metadata is no JSON"),
        ({"driple_op_frequency": b"\xff"}, "driple.op_frequency in its metadata is no JSON"),
        ({"driple_op_frequency": ["Conv2D"]}, "op_frequency: expected dict"),
        ({"driple_op_frequency": None, "driple_size_batches": None}, "no frequencies of op types"),
        ({"driple_op_frequency": {"Conv2D": "often"}}, "op_frequency.Conv2D: expected float"),
        ({"driple_size_batches": {"largest": [3], "groups": []}}, "size_batches"),
        ({"op_type": None}, "column 'op_type' is missing"),
        ({"net_rx_idle_s": None}, "column 'net_rx_idle_s' is missing"),
    ],
)
def test_a_file_of_another_kind(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    work.rewrite(work.write(work.zoo(), tmp_path), **changes)
    assert said in refused(tmp_path)


@pytest.mark.parametrize("name", ["batch_size", "gpu_burst_s", "family", "op_bytes", "op_type", "edge_src"])
def test_a_column_of_another_type(tmp_path: Path, name: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = work.write(work.zoo(), tmp_path)
    table = pq.read_table(path)
    odd = pa.array([[b"odd"]] * len(table) if "_" in name and name[:2] in ("op", "ed") else [True] * len(table))
    pq.write_table(table.set_column(table.schema.get_field_index(name), name, odd), path)
    assert f"column '{name}' is of type" in refused(tmp_path)


def test_op_types_that_are_no_text(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = work.write(work.zoo(), tmp_path)
    table = pq.read_table(path)
    odd = pa.array([[b"\xff\xfe"]] * len(table)).cast(pa.list_(pa.binary()))
    broken = pa.ListArray.from_arrays(odd.offsets, pa.Array.from_buffers(pa.string(), len(table), odd.values.buffers()))
    place = table.schema.get_field_index("op_type")
    pq.write_table(table.set_column(place, table.schema.field("op_type"), broken), path)
    assert "an op whose type is no text" in refused(tmp_path)


def test_files_from_before_traffic_was_written(tmp_path: Path) -> None:
    work.rewrite(work.write(work.zoo(), tmp_path), bytes_received=None, bytes_sent=None)
    found = read_examples(tmp_path, work.SETTING)
    assert {item.received_bytes for item in found.items} == {None}
    assert {item.sent_bytes for item in found.items} == {None}


def _only_gpu_null(row: dict[str, Any]) -> None:
    row.update(dict.fromkeys(COLUMNS))


def _mixed(row: dict[str, Any]) -> None:
    row["provenance"] = "simulated" if row["family"] == "vgg" else "measured"


def _server_simulated(row: dict[str, Any]) -> None:
    row["provenance"] = "simulated" if row["role"] == "ps" else "measured"


def _no_graph(row: dict[str, Any]) -> None:
    row["graph"] = None


def _odd_side(row: dict[str, Any]) -> None:
    row["split_random"] = "holdout"


def _two_sides(row: dict[str, Any]) -> None:
    row["split_architecture"] = "train" if row["task"] == "worker:0" else "test"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_only_gpu_null, "every target of every row of role worker is null"),
        (_mixed, "rows that are measured and simulated in one dataset: they are never mixed"),
        (_server_simulated, "rows that are measured and simulated in one dataset: they are never mixed"),
        (_no_graph, "a row without a graph"),
        (_odd_side, "split_random"),
        (_two_sides, "split_architecture"),
    ],
)
def test_rows_that_nothing_can_be_learned_from(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], said: str
) -> None:
    work.write(work.zoo(), tmp_path, change)
    assert said in refused(tmp_path)


def test_no_rows_at_all(tmp_path: Path) -> None:
    work.write(files.Dataset(work.SETTING), tmp_path)
    assert "no rows of role worker" in refused(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("op_bytes", np.inf, "the size of an op is not a number"),
        ("op_bytes", np.nan, "the size of an op is not a number"),
        ("op_bytes", -1.0, "the size of an op is not a number, or negative"),
        ("op_flops", np.inf, "the FLOPs of an op are infinite"),
        ("op_flops", -1.0, "the FLOPs of an op are infinite, or negative"),
        ("op_bytes", None, "op_bytes has a null"),
        ("edge_dst", 10_000, "an edge beyond"),
        ("op_type", None, "ops without a type"),
    ],
)
def test_a_value_of_a_graph_that_is_none(tmp_path: Path, name: str, value: Any, said: str) -> None:
    import pyarrow.parquet as pq

    path = work.write(work.zoo(), tmp_path)
    lists = pq.read_table(path, columns=[name])[name].to_pylist()
    first = next(position for position, cell in enumerate(lists) if cell)
    lists[first][-1] = value
    work.rewrite(path, **{name: lists})
    text = refused(tmp_path)
    assert said in text
    assert "graph " in text


@pytest.mark.parametrize("name", ["op_bytes", "op_type", "edge_dst"])
def test_lists_that_are_missing_or_too_short(tmp_path: Path, name: str) -> None:
    import pyarrow.parquet as pq

    path = work.write(work.zoo(), tmp_path)
    lists = pq.read_table(path, columns=[name])[name].to_pylist()
    first = next(position for position, cell in enumerate(lists) if cell)
    short = list(lists)
    short[first] = lists[first][:-1]
    work.rewrite(path, **{name: short})
    assert "graph " in refused(tmp_path)
    short[first] = None
    work.rewrite(path, **{name: short})
    assert "graph " in refused(tmp_path)


def test_a_graph_that_is_named_and_not_there(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = work.write(work.zoo(), tmp_path)
    names = pq.read_table(path, columns=["graph"])["graph"].to_pylist()
    work.rewrite(path, graph=[*names[:-1], "f" * 64])
    assert f"graph {'f' * 12} is named by a row and is not there" in refused(tmp_path)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_target_that_is_no_number(tmp_path: Path, value: float) -> None:
    import pyarrow.parquet as pq

    path = work.write(work.zoo(), tmp_path)
    values = pq.read_table(path, columns=["gpu_idle_s"])["gpu_idle_s"].to_pylist()
    work.rewrite(path, gpu_idle_s=[*values[:-1], value])
    assert "gpu_idle_s is" in refused(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("width", np.nan, "width is nan; what is unknown is null in a dataset"),
        ("network_rate_mbit", np.inf, "network_rate_mbit is inf; what is unknown is null"),
        ("bytes_received", np.nan, "bytes_received is nan; what is unknown is null"),
        ("batch_size", -5, "batch_size is -5; expected 0 to 1e+18"),
        ("bytes_sent", -1e9, "bytes_sent is -1e+09; expected 0 to 1e+18"),
        ("net_rx_idle_s", -0.1, "net_rx_idle_s is -0.1; expected 0 to 1e+18"),
        ("net_rx_idle_s", 1e300, "net_rx_idle_s is 1e+300; expected 0 to 1e+18"),
    ],
)
@pytest.mark.parametrize("task", ["ps:0", "worker:1"])
def test_what_is_no_amount_of_anything(tmp_path: Path, name: str, value: float, said: str, task: str) -> None:
    import pyarrow.parquet as pq

    path = work.write(work.zoo(), tmp_path)
    rows = pq.read_table(path, columns=["task", name])
    tasks, values = (rows[column].to_pylist() for column in ("task", name))
    values[tasks.index(task)] = value
    work.rewrite(path, **{name: values})
    assert said in refused(tmp_path)


def test_enough_to_learn_from(tmp_path: Path) -> None:
    enough(work.examples(tmp_path), "architecture")
    enough(work.examples(tmp_path), "random")
    enough(work.examples(tmp_path, work.published(24)), "random")


@pytest.mark.parametrize(
    ("dataset", "split", "said"),
    [
        (lambda: work.zoo(families=("vgg",)), "architecture", "one family of models, vgg"),
        (lambda: work.zoo(families=("vgg", "resnet")), "architecture", "no rows on side val and test"),
        (lambda: work.zoo(families=("densenet", "alexnet")), "architecture", "no rows on side train"),
        (lambda: work.zoo(batches=(32,)), "random", "no rows on side val and test of the random split"),
        (lambda: work.zoo(depths=(1,), batches=(8, 16)), "architecture", "6 workloads to train on"),
        (lambda: work.published(24), "architecture", "do not say their model"),
    ],
)
def test_not_enough_to_learn_from(tmp_path: Path, dataset: Callable[[], files.Dataset], split: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        enough(work.examples(tmp_path, dataset()), split)


@pytest.mark.parametrize("side", ["val", "test"])
def test_a_side_on_which_nothing_is_known(tmp_path: Path, side: str) -> None:
    found = work.examples(tmp_path)
    blind = np.full(len(COLUMNS), np.nan)
    items = [dataclasses.replace(i, targets=blind) if i.split_architecture == side else i for i in found.items]
    with pytest.raises(BadInput, match=f"all targets are null on side {side} of the architecture split"):
        enough(dataclasses.replace(found, items=tuple(items)), "architecture")


def test_random_is_advised_only_where_it_would_do(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="or use --split random"):
        enough(work.examples(tmp_path, work.zoo(families=("vgg", "resnet"), depths=range(1, 6))), "architecture")
    with pytest.raises(BadInput) as caught:
        enough(work.examples(tmp_path, work.zoo(families=("vgg", "resnet"), batches=(32,))), "architecture")
    assert "--split random" not in str(caught.value)


def test_targets_that_too_few_rows_know(tmp_path: Path) -> None:
    dataset = work.zoo()
    for row in dataset.rows:
        if row["family"] != "vgg" or row["model"] != "vgg1":
            row["gpu_idle_s"] = None
    train = work.examples(tmp_path, dataset).side("architecture", "train")
    assert usable(train).tolist() == [True, False, True] + [False] * 3 + [True] * 6
    assert usable(train, least=3)[1]
    for row in dataset.rows:
        row.update({name: None for name in COLUMNS if name != "gpu_idle_s"})
    with pytest.raises(BadInput, match="no target is known in 5 or more training rows"):
        enough(work.examples(tmp_path, dataset), "architecture")


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
