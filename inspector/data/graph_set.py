"""Graphs of a dataset with features, targets and masks, for PyTorch Geometric, DGL and others.

graphs = driple.load_graphs("cpu-p1w2-1g")
graphs.side("train").to_pyg()      # [torch_geometric.data.Data, ...]
graphs.side("train").to_dgl()      # [dgl graphs], {name: tensor [n, ...]}

An item is a workload as inspectors see it: the mean over the tasks of a role and over repetitions. Features and targets
are in their units, not scaled.
"""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput, UnknownName
from driple.contracts.formats.dataset import ARCHITECTURE, SIDES, SPLITS
from driple.contracts.metrics import COLUMNS
from driple.contracts.strategy import WORKER
from driple.inspector.data.array_types import BoolArray, FloatArray, IntArray
from driple.inspector.data.dataset_rows import read_examples
from driple.inspector.data.examples import Example
from driple.inspector.data.node_features import DRIPLE, Featuriser
from driple.inspector.data.workload_features import WORKLOAD_FEATURES, workload_features

GROUPING = "uniform:20"


@dataclass(frozen=True, eq=False, kw_only=True)
class GraphItem:
    """One workload."""

    nodes: FloatArray
    """[M, node features]"""
    edges: IntArray
    """[E, 2], both directions of every edge."""
    facts: FloatArray
    """[workload features]; NaN where unknown."""
    targets: FloatArray
    """[targets]; NaN where unknown."""
    side: str | None
    """`train`, `val` or `test`; None where the split does not know."""
    workload: MappingProxyType[str, Any]
    """Columns of the dataset that describe the workload."""


@dataclass(frozen=True, eq=False, kw_only=True)
class GraphSet:
    """The workloads of a setting."""

    setting: str
    role: str
    provenance: str
    """`measured`, `simulated` or `published`."""
    node_features: tuple[str, ...]
    workload_features: tuple[str, ...]
    targets: tuple[str, ...]
    items: tuple[GraphItem, ...]

    def __len__(self) -> int:
        return len(self.items)

    def side(self, name: str) -> GraphSet:
        """The workloads of one side of the split. Raises UnknownName."""
        if name not in SIDES:
            raise UnknownName("side", name, SIDES)
        return dataclasses.replace(self, items=tuple(item for item in self.items if item.side == name))

    def to_pyg(self) -> list[Any]:
        """For PyTorch Geometric: a Data for each workload.

        `x` [M, node features], `edge_index` [2, E], `y` [1, targets] and `y_mask` (False and 0 where unknown), `facts`
        [1, workload features] and `facts_mask`, `side`.

        Raises:
            BadInput: torch_geometric is not installed.
        """
        data, torch = _needed("torch_geometric.data", "torch_geometric"), _needed("torch", "torch")
        found = []
        for item in self.items:
            (facts, facts_mask), (y, y_mask) = _masked(item.facts[None]), _masked(item.targets[None])
            tensors = {"x": item.nodes.astype(np.float32), "y": y, "y_mask": y_mask}
            tensors |= {"facts": facts, "facts_mask": facts_mask, "edge_index": np.ascontiguousarray(item.edges.T)}
            values = {name: torch.from_numpy(array) for name, array in tensors.items()}
            found.append(data.Data(**values, side=item.side or ""))
        return found

    def to_dgl(self) -> tuple[list[Any], dict[str, Any]]:
        """For DGL: the graphs, with `ndata["x"]`, and tensors with a row for each of them.

        The tensors are `y` [n, targets] and `y_mask` (False and 0 where unknown), `facts` [n, workload features] and
        `facts_mask`, and the masks [n] `train`, `val` and `test`. `dgl.save_graphs` takes both.

        Raises:
            BadInput: dgl is not installed.
        """
        os.environ.setdefault("DGLBACKEND", "pytorch")  # else DGL writes a file into the user's home
        dgl, torch = _needed("dgl", "dgl"), _needed("torch", "torch")
        graphs = []
        for item in self.items:
            graph = dgl.graph(tuple(torch.from_numpy(item.edges.T.copy())), num_nodes=len(item.nodes))
            graph.ndata["x"] = torch.from_numpy(item.nodes.astype(np.float32))
            graphs.append(graph)
        facts, facts_mask = _masked(np.array([item.facts for item in self.items]).reshape(len(self), -1))
        y, y_mask = _masked(np.array([item.targets for item in self.items]).reshape(len(self), -1))
        arrays = {"y": y, "y_mask": y_mask, "facts": facts, "facts_mask": facts_mask}
        arrays |= {side: np.array([item.side == side for item in self.items], dtype=bool) for side in SIDES}
        return graphs, {name: torch.from_numpy(array) for name, array in arrays.items()}


def load_graphs(
    setting: str,
    *,
    datasets: str | Path = "datasets",
    role: str = WORKER,
    split: str = ARCHITECTURE,
    grouping: str = GROUPING,
    features: str = DRIPLE,
    mix_machines: bool = False,
) -> GraphSet:
    """Loads the workloads of a setting as graphs with features and targets.

    Args:
        setting: which, such as `cpu-p1w2-1g`.
        datasets: folder with `<setting>.parquet`, or that file.
        role: `worker` or `ps`.
        split: `architecture` or `random`.
        grouping: how ops become nodes; `none`: every op is a node.
        features: node features: `driple`, or the three of the `paper`.
        mix_machines: also runs of machines that differ by more than 5 %.

    Raises:
        BadInput: an unknown name, or a dataset that cannot be read.
    """
    if split not in SPLITS:
        raise UnknownName("split", split, SPLITS)
    examples = read_examples(Path(datasets), setting, role, mix_machines=mix_machines)
    featuriser = Featuriser(features, examples.recipe(grouping))
    return GraphSet(
        setting=examples.setting,
        role=examples.role,
        provenance=examples.provenance,
        node_features=featuriser.names,
        workload_features=WORKLOAD_FEATURES,
        targets=COLUMNS,
        items=tuple(_item(featuriser, example, split) for example in examples.items),
    )


def _item(featuriser: Featuriser, example: Example, split: str) -> GraphItem:
    sample = featuriser.sample_of(example)
    return GraphItem(
        nodes=sample.features,
        edges=np.concatenate([sample.edges, sample.edges[:, ::-1]]),
        facts=workload_features(example, featuriser.loops),
        targets=example.targets,
        side=getattr(example, f"split_{split}"),
        workload=MappingProxyType(example.workload),
    )


def _masked(values: FloatArray) -> tuple[Any, BoolArray]:
    """float32 with 0 where unknown, and whether it is known."""
    known = ~np.isnan(values)
    return np.where(known, values, 0.0).astype(np.float32), known


def _needed(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise BadInput(f"{package} is not installed: pip install {package}") from None
