"""Graphs of a dataset for other libraries: the same features and targets as inspectors see."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import inspector_work as work
import numpy as np
import pytest

import driple
from driple.contracts.errors import BadInput, UnknownName
from driple.contracts.metrics import COLUMNS
from driple.inspector.data.dataset_rows import read_examples
from driple.inspector.data.graph_set import GraphSet, load_graphs
from driple.inspector.data.node_features import DRIPLE, NAMES, PAPER, Featuriser
from driple.inspector.data.workload_features import WORKLOAD_FEATURES, workload_feature_table


def null_a_target(row: dict[str, Any]) -> None:
    if row["model"] and row["model"].endswith("1"):
        row[COLUMNS[0]] = None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset in which some targets are null."""
    folder = tmp_path_factory.mktemp("datasets")
    work.write(work.zoo(), folder, null_a_target)
    return folder


@pytest.fixture(scope="module")
def graphs(folder: Path) -> GraphSet:
    return load_graphs(work.SETTING, datasets=folder, grouping="uniform:5")


def test_it_is_public() -> None:
    assert driple.load_graphs is load_graphs


def test_features_and_targets_are_those_of_examples(folder: Path, graphs: GraphSet) -> None:
    examples = read_examples(folder, work.SETTING)
    featuriser = Featuriser(DRIPLE, examples.recipe("uniform:5"))
    assert (graphs.setting, graphs.role, graphs.provenance) == (work.SETTING, "worker", "measured")
    assert (graphs.node_features, graphs.workload_features) == (NAMES[DRIPLE], WORKLOAD_FEATURES)
    assert graphs.targets == COLUMNS
    assert len(graphs) == len(examples)
    table = workload_feature_table(examples.items)
    for place, (item, example) in enumerate(zip(graphs.items, examples.items, strict=True)):
        sample = featuriser.sample_of(example)
        np.testing.assert_array_equal(item.nodes, sample.features)
        there, back = np.split(item.edges, 2)
        np.testing.assert_array_equal(there, sample.edges)
        np.testing.assert_array_equal(back, there[:, ::-1])
        np.testing.assert_array_equal(item.facts, table[place])
        np.testing.assert_array_equal(item.targets, example.targets)
        assert item.workload["batch_size"] == example.workload["batch_size"]


def test_sides_are_those_of_the_split(folder: Path, graphs: GraphSet) -> None:
    for item in graphs.items:
        assert item.side == work.FAMILIES[item.workload["family"]]
    assert sum(len(graphs.side(side)) for side in ("train", "val", "test")) == len(graphs)
    by_chance = load_graphs(work.SETTING, datasets=folder, split="random")
    assert [item.side for item in by_chance.items] != [item.side for item in graphs.items]


def test_options(folder: Path) -> None:
    ops = load_graphs(work.SETTING, datasets=folder, grouping="none", features=PAPER, role="ps")
    assert (ops.role, ops.node_features) == ("ps", NAMES[PAPER])
    assert all(item.nodes[:, 2].tolist() == [1.0] * len(item.nodes) for item in ops.items)
    with pytest.raises(UnknownName, match="split"):
        load_graphs(work.SETTING, datasets=folder, split="none")
    with pytest.raises(UnknownName, match="features"):
        load_graphs(work.SETTING, datasets=folder, features="all")
    with pytest.raises(UnknownName, match="side"):
        ops.side("tests")
    with pytest.raises(BadInput, match="no such dataset"):
        load_graphs(work.SETTING, datasets=folder / "none")


def test_published_rows_have_their_features(tmp_path: Path) -> None:
    work.write(work.published(), tmp_path)
    found = load_graphs(work.SETTING, datasets=tmp_path, features=PAPER, split="random")
    assert {item.side for item in found.items} == {"train", "val", "test"}
    assert load_graphs(work.SETTING, datasets=tmp_path).items[0].side is None


@pytest.mark.skipif(importlib.util.find_spec("torch_geometric") is None, reason="needs torch_geometric")
@pytest.mark.filterwarnings("default")  # of its dependencies
def test_pytorch_geometric_takes_them(graphs: GraphSet) -> None:
    from torch_geometric.loader import DataLoader

    data = graphs.to_pyg()
    for one, item in zip(data, graphs.items, strict=True):
        one.validate()
        assert one.is_undirected()
        np.testing.assert_allclose(one.x.numpy(), item.nodes, rtol=1e-6)
        known = ~np.isnan(item.targets)
        assert one.y_mask.numpy()[0].tolist() == known.tolist()
        np.testing.assert_allclose(one.y.numpy()[0][known], item.targets[known], rtol=1e-6)
        assert not one.y.numpy()[0][~known].any()
        assert one.side == item.side
    batch = next(iter(DataLoader(data, batch_size=7)))
    assert batch.num_graphs == 7
    assert batch.y.shape == batch.y_mask.shape == (7, len(COLUMNS))
    assert batch.facts.shape == (7, len(WORKLOAD_FEATURES))


@pytest.mark.skipif(importlib.util.find_spec("dgl") is None, reason="needs dgl")
def test_dgl_takes_them(graphs: GraphSet, tmp_path: Path) -> None:
    made, tensors = graphs.to_dgl()
    import dgl

    for graph, item in zip(made, graphs.items, strict=True):
        assert graph.num_edges() == len(item.edges)
        np.testing.assert_allclose(graph.ndata["x"].numpy(), item.nodes, rtol=1e-6)
    targets = np.array([item.targets for item in graphs.items])
    assert np.isnan(targets).any()
    np.testing.assert_array_equal(tensors["y_mask"].numpy(), ~np.isnan(targets))
    np.testing.assert_allclose(tensors["y"].numpy(), np.nan_to_num(targets), rtol=1e-6)
    assert tensors["facts"].shape == (len(graphs), len(WORKLOAD_FEATURES))
    assert not np.isnan(tensors["facts"].numpy()).any()
    assert [tensors[side].sum().item() for side in ("train", "val", "test")] == [
        len(graphs.side(side)) for side in ("train", "val", "test")
    ]
    assert dgl.batch(made).num_nodes() == sum(len(item.nodes) for item in graphs.items)
    dgl.save_graphs(str(tmp_path / "all.bin"), made, tensors)
    again, labels = dgl.load_graphs(str(tmp_path / "all.bin"))
    assert len(again) == len(made) and labels.keys() == tensors.keys()


def test_a_library_that_is_not_installed_is_one_line(graphs: GraphSet, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    for name in ("torch_geometric.data", "dgl"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(BadInput, match="^torch_geometric is not installed: pip install torch_geometric$"):
        graphs.to_pyg()
    with pytest.raises(BadInput, match="^dgl is not installed: pip install dgl$"):
        graphs.to_dgl()
