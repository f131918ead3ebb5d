"""Published datasets become rows; any other file, and above all one that wants to run something, is refused."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from driple.contracts.errors import BadInput
from driple.contracts.formats.dataset import SIDES
from driple.contracts.metrics import TARGET_OF_COLUMN
from driple.contracts.setting import PUBLISHED as SETTINGS
from driple.contracts.setting import Setting
from driple.pipeline.datasets import published_datasets

torch = pytest.importorskip("torch")

ORDER = [
    "gpu_mem_idle_s", "gpu_mem_burst_s", "gpu_mem_burst_pct",
    "gpu_idle_s", "gpu_burst_s", "gpu_burst_pct",
    "net_rx_idle_s", "net_rx_burst_s", "net_rx_burst_bytes_per_s",
    "net_tx_idle_s", "net_tx_burst_s", "net_tx_burst_bytes_per_s",
]  # fmt: skip
NAME = "1_V100-P1w2ho_PCIe.pkl"


def contents(sizes: dict[str, list[int]] | None = None, nodes: int = 5) -> tuple[dict[str, Any], ...]:
    """What a published file holds: batches of the given sizes."""
    sizes = sizes or {"train": [3, 3], "val": [2], "test": [2]}
    random = torch.Generator().manual_seed(1)
    parts: tuple[dict[str, Any], ...] = ({}, {}, {})
    for side, batches in sizes.items():
        upper = [torch.triu((torch.rand(b, nodes, nodes, generator=random) < 0.5).float(), 1) for b in batches]
        parts[0][side] = [half + half.transpose(1, 2) for half in upper]
        parts[1][side] = [torch.rand(b, nodes, 3, generator=random) * 100 for b in batches]
        parts[2][side] = [torch.rand(b, 12, generator=random) * 10 for b in batches]
    return parts


def test_order_of_labels_features_and_edges(tmp_path: Path) -> None:
    parts = contents()
    torch.save(parts, tmp_path / NAME)
    found = published_datasets.load(tmp_path / NAME, None, 7)
    assert str(found.setting) == "v100-p1w2-pcie"
    assert [row["split_random"] for row in found.rows] == ["train"] * 6 + ["val"] * 2 + ["test"] * 2
    assert set(ORDER) == set(TARGET_OF_COLUMN)
    row = found.rows[4]  # the second graph of the second batch
    adjacency, features, labels = (part["train"][1][1].numpy().astype(float) for part in parts)
    assert [row[column] for column in ORDER] == labels.tolist()
    graph = found.graphs[row["graph"]]
    assert np.array_equal(graph["group_bytes"], features[:, 0])
    assert np.array_equal(graph["group_size"], features[:, 1])
    assert np.array_equal(graph["group_frequency"], features[:, 2])
    again = np.zeros((5, 5))
    again[graph["edge_src"], graph["edge_dst"]] = 1
    assert np.array_equal(again + again.T, adjacency)
    assert (row["nodes"], row["edges"]) == (5, adjacency.sum() / 2)
    assert row["provenance"] == "published"
    assert row["rules_version"] == 7
    assert row["flags"] == ["units_as_published"]
    assert row.get("split_architecture") is None
    assert row.get("model") is None
    assert len({row["run_id"] for row in found.rows}) == 10


@pytest.mark.parametrize("number", range(len(SETTINGS)))
def test_names_of_the_published_files_are_settings(number: int, tmp_path: Path) -> None:
    known = SETTINGS[number]
    name = f"{number + 1}_{known.name.replace('/', '').replace('-PCIe', '_PCIe')}.pkl"
    torch.save(contents({"train": [1], "val": [], "test": []}), tmp_path / name)
    assert published_datasets.load(tmp_path / name, None, 1).setting == known.setting


def test_a_setting_that_is_given_wins(tmp_path: Path) -> None:
    torch.save(contents(), tmp_path / "anything.bin")
    setting = Setting.parse("cpu-p1w1-1g")
    assert published_datasets.load(tmp_path / "anything.bin", setting, 1).setting == setting
    with pytest.raises(BadInput, match="is not a setting"):
        published_datasets.load(tmp_path / "anything.bin", None, 1)


def test_what_an_adjacency_should_not_have_is_flagged(tmp_path: Path) -> None:
    parts = contents({"train": [1], "val": [], "test": []}, nodes=3)
    parts[0]["train"][0][0] = torch.tensor([[1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    torch.save(parts, tmp_path / NAME)
    (row,) = published_datasets.load(tmp_path / NAME, None, 1).rows
    assert row["flags"][1:] == ["edge_weights_dropped", "self_loops_dropped", "adjacency_symmetrised"]
    assert row["edges"] == 1


def test_a_graph_with_nan_is_left_out_and_named(tmp_path: Path) -> None:
    parts = contents()
    parts[1]["val"][0][1, 0, 0] = float("nan")
    torch.save(parts, tmp_path / NAME)
    found = published_datasets.load(tmp_path / NAME, None, 1)
    assert len(found.rows) == 9
    assert found.left_out == ["published-v100-p1w2-pcie-val-00001: a feature or an edge that is not a number"]


class Evil:
    """Touches a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.mark}",)


@pytest.mark.parametrize("way", ["zip", "old", "pickle", "inside"])
def test_a_file_that_wants_to_run_something_is_refused(way: str, tmp_path: Path) -> None:
    mark, path = tmp_path / "ran", tmp_path / NAME
    parts = contents()
    if way == "inside":
        parts[2]["train"].append(Evil(mark))
        torch.save(parts, path)
    elif way == "pickle":
        path.write_bytes(pickle.dumps(Evil(mark), protocol=2))
    else:
        torch.save(Evil(mark), path, _use_new_zipfile_serialization=way == "zip")
    with pytest.raises(BadInput) as error:
        published_datasets.load(path, None, 1)
    assert str(error.value).startswith(f"{path}: refused: it would run 'posix.system'")
    assert "\n" not in str(error.value)
    assert not mark.exists()


def _checkpoint(path: Path) -> None:
    torch.save({"conv_layers.0.W": torch.zeros(2), "conv_layers.0.b": torch.zeros(2)}, path)


def _cut_short(path: Path) -> None:
    torch.save(contents(), path)
    path.write_bytes(path.read_bytes()[:-300])


def _lost_side(path: Path) -> None:
    parts = contents()
    del parts[1]["val"]
    torch.save(parts, path)


def _wrong_labels(path: Path) -> None:
    parts = contents()
    parts[2]["test"][0] = torch.zeros(2, 11)
    torch.save(parts, path)


def _fewer_batches(path: Path) -> None:
    parts = contents()
    parts[2]["train"].pop()
    torch.save(parts, path)


def _grown_from_nothing(path: Path) -> None:
    parts = contents({"train": [1], "val": [], "test": []})
    parts[0]["train"][0] = torch.zeros(1).expand(1, 10**6, 10**6)
    torch.save(parts, path)


def _sparse(path: Path) -> None:
    parts = contents()
    parts[0]["val"][0] = parts[0]["val"][0].to_sparse()
    torch.save(parts, path)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (_checkpoint, "a checkpoint (2 weights such as 'conv_layers.0.W'), not a dataset"),
        (_cut_short, "not a file that torch.save wrote, or one cut short"),
        (lambda path: path.write_text("hello"), "not a file that torch.save wrote"),
        (lambda path: path.write_bytes(b""), "not a file that torch.save wrote"),
        (lambda path: torch.save([1, 2], path), "got list of 2"),
        (_lost_side, "features has no list 'val'"),
        (_wrong_labels, "test[0]: expected [B, N, N], [B, N, 3] and [B, 12], got [2, 5, 5], [2, 5, 3], [2, 11]"),
        (_fewer_batches, "train: adjacency, features and labels have different numbers of batches"),
        (_grown_from_nothing, "a tensor claims more values than the file holds"),
        (_sparse, "val[0]: expected an ordinary tensor"),
        (lambda path: torch.save(contents({side: [] for side in SIDES}), path), "holds no usable graphs"),
        (os.mkfifo, "not a regular file"),
        (lambda path: None, "no such file"),
    ],
)
def test_other_files_are_told_apart(make: Callable[[Path], object], reason: str, tmp_path: Path) -> None:
    path = tmp_path / NAME
    make(path)
    with pytest.raises(BadInput) as error:
        published_datasets.load(path, None, 1)
    assert str(error.value).startswith(f"{path}: ")
    assert reason in str(error.value)
    assert "\n" not in str(error.value)
