"""Datasets that cannot be learned from are refused in one line that says why."""

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
from driple.inspector.data.dataset_rows import read_examples
from driple.inspector.data.examples import enough, usable
from driple.pipeline.datasets import dataset_file as files


def refused(folder: Path, role: str = "worker") -> str:
    with pytest.raises(BadInput) as caught:
        read_examples(folder, work.SETTING, role)
    text = str(caught.value)
    assert "\n" not in text
    return text


def test_a_dataset_that_is_not_there(tmp_path: Path) -> None:
    work.write(work.zoo(), tmp_path)
    with pytest.raises(BadInput) as caught:
        read_examples(tmp_path, "cpu-p1w2-10g")
    text = str(caught.value)
    assert f"has {work.SETTING}" in text
    assert f"did you mean {work.SETTING}?" in text
    assert "driple-run" in text
    assert "driple-build-dataset traces/" in text
    assert "driple-calibrate" not in text  # there is a device file of `cpu`
    with pytest.raises(BadInput, match="no such dataset .*no device file of h100 .*driple-calibrate --name h100"):
        read_examples(tmp_path, "h100-p1w2-10g")
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
        ({"driple_setting": b"{"}, "driple.setting is not valid JSON"),
        ({"driple_op_frequency": b"\xff"}, "driple.op_frequency is not valid JSON"),
        ({"driple_op_frequency": ["Conv2D"]}, "op_frequency: expected dict"),
        ({"driple_op_frequency": None, "driple_size_batches": None}, "no frequencies of op types"),
        ({"driple_op_frequency": {"Conv2D": "often"}}, "op_frequency.Conv2D: expected float"),
        ({"driple_size_batches": {"largest": [3], "groups": []}}, "size_batches"),
        ({"op_type": None}, "column 'op_type' is missing"),
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
    assert "an op type that is not text" in refused(tmp_path)


def _only_gpu_null(row: dict[str, Any]) -> None:
    row.update(dict.fromkeys(COLUMNS))


def _mixed(row: dict[str, Any]) -> None:
    row["provenance"] = "simulated" if row["family"] == "vgg" else "measured"


def _server_simulated(row: dict[str, Any]) -> None:
    row["provenance"] = "simulated" if row["role"] == "ps" else "measured"


def _odd_provenance(row: dict[str, Any]) -> None:
    row["provenance"] = "guessed"


def _no_provenance(row: dict[str, Any]) -> None:
    row["provenance"] = None


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
        (_odd_provenance, "rows of provenance 'guessed': expected measured, simulated, published"),
        (_no_provenance, "rows of provenance 'None': expected measured"),
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


def test_a_row_that_does_not_say_its_run(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = work.write(work.zoo(), tmp_path)
    runs = pq.read_table(path, columns=["run_id"])["run_id"].to_pylist()
    work.rewrite(path, run_id=[None, *runs[1:]])
    assert "a row without a run (run_id is null)" in refused(tmp_path)


def test_no_rows_at_all(tmp_path: Path) -> None:
    work.write(files.Dataset(work.SETTING), tmp_path)
    assert "no rows of role worker" in refused(tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("op_bytes", np.inf, "the size of an op is not a number"),
        ("op_bytes", np.nan, "the size of an op is not a number"),
        ("op_bytes", 1e300, "size of an op: 1e+300; expected at most 1e+18"),
        ("op_flops", 1e19, "FLOPs of an op: 1e+19; expected at most 1e+18"),
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
    assert f"graph {'f' * 12} is named by a row and missing" in refused(tmp_path)


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
        ("width", np.nan, "width is nan; write null for an unknown value"),
        ("network_rate_mbit", np.inf, "network_rate_mbit is inf; write null for an unknown value"),
        ("bytes_received", np.nan, "bytes_received is nan; write null for an unknown value"),
        ("batch_size", -5, "batch_size is -5; expected 1 or more"),
        ("batch_size", 0, "batch_size is 0; expected 1 or more"),
        ("bytes_sent", -1e9, "bytes_sent is -1e+09; expected 0 to 1e+18"),
        ("net_rx_idle_s", -0.1, "net_rx_idle_s is -0.1; expected 0 to 1e+18"),
        ("net_rx_idle_s", 1e300, "net_rx_idle_s is 1e+300; expected 0 to 1e+18"),
        ("net_rx_idle_s", 1e-160, "net_rx_idle_s is 1e-160; expected 0, or more than 1e-18"),
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
        (lambda: work.published(24), "architecture", "have no model names"),
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
