"""Graphs as the encoder takes them: features of groups of ops, and shortest paths between groups.

GHN-2 goes through single ops; a training graph of TensorFlow has thousands. So ops are grouped first, as everywhere in
this project. A group has the number, kilobytes and MFLOPs of its ops by class, as log1p.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from driple.contracts.run_spec import Workload
from driple.contracts.setting import Setting
from driple.contracts.zoo import DATASETS, IMAGE, MODELS, Model, ordinary_size
from driple.inspector.data.array_types import FloatArray
from driple.inspector.data.node_features import KILOBYTE, MEGAFLOP
from driple.pipeline.graph.public import CLASSES, OpGraph, class_numbers, recipe_of, stored_graph

GROUPS = "uniform:64"
FURTHEST = 50
"""Longest path that has a virtual edge, as in GHN-2."""
FEATURES = 3 * len(CLASSES)
_ZOO_BATCHES = (4, 16, 64)
_ZOO_SETTING = Setting.parse("cpu-p1w1-1g")


class EncoderGraph(NamedTuple):
    """One graph, grouped."""

    features: FloatArray
    """[m, FEATURES]"""
    distances: FloatArray
    """[m, m]: edges from one group to another on the shortest path; 0 without a path, or if it is too long."""


def encoder_graph(graph: OpGraph, seed: int = 0) -> EncoderGraph:
    """Groups a graph; another seed groups it differently."""
    from scipy.sparse.csgraph import shortest_path

    grouped = recipe_of([graph], GROUPS, seed).group(graph)
    count = len(grouped.features)
    classes = class_numbers(graph.ops)
    features = np.zeros((count, FEATURES))
    amounts = (np.ones(len(graph.ops)), graph.bytes / KILOBYTE, np.nan_to_num(graph.flops) / MEGAFLOP)
    for part, amount in enumerate(amounts):
        np.add.at(features, (grouped.groups, part * len(CLASSES) + classes), amount)
    edges = np.zeros((count, count))
    edges[grouped.edges[:, 0], grouped.edges[:, 1]] = 1.0
    paths = shortest_path(edges, directed=True, unweighted=True)
    return EncoderGraph(np.log1p(features), np.where(paths <= FURTHEST, paths, 0.0))


def two_views(graphs: Iterable[OpGraph]) -> Iterator[tuple[EncoderGraph, EncoderGraph]]:
    """Each graph grouped with two seeds."""
    for graph in graphs:
        yield encoder_graph(graph, 1), encoder_graph(graph, 2)


def zoo_graphs() -> Iterator[OpGraph]:
    """The stored graphs of the zoo, with a few batch sizes."""
    for model in MODELS.values():
        for batch_size in _ZOO_BATCHES:
            found = stored_graph(_default(model, batch_size), _ZOO_SETTING)
            if found is not None:
                yield found


def _default(model: Model, batch_size: int) -> Workload:
    dataset = model.datasets[0]
    size = ordinary_size(model, DATASETS[dataset])
    image = DATASETS[dataset].kind == IMAGE
    lengths = (size, None) if image else (None, size)
    return Workload(model.name, dataset, batch_size, image_size=lengths[0], sequence_length=lengths[1])
