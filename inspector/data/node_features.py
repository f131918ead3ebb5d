"""Node features of a graph.

`paper`
    The three published features: frequency, bytes and number of the group's ops, in the order of FEATURES.
`driple`
    These three, the group's FLOPs, the FLOPs of the classes in COUNTED, and the number and bytes of the ops of each
    class. A published graph has only the first three: its other columns are 0. FLOPs and bytes of an op in a loop
    count in every iteration, or `once`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.json_values import from_plain, to_plain
from driple.inspector.data.array_types import FloatArray, IntArray
from driple.inspector.data.examples import Example, Graph, PublishedGraph, loop_length
from driple.inspector.model.model_config import EVERY, FEATURE_KINDS, LOOPS, ONCE, one_of
from driple.pipeline.graph.public import CLASSES, COUNTED, FEATURES, OpGraph, Recipe, class_numbers, undirected

PAPER, DRIPLE = FEATURE_KINDS

# Units in which an amount below 1 hardly matters, so that log1p maps it to about 0.
KILOBYTE = 1e3
MEGAFLOP = 1e6

NAMES: Mapping[str, tuple[str, ...]] = {
    PAPER: FEATURES,
    DRIPLE: (
        *("frequency", "kilobytes", "ops", "megaflops"),
        *(f"{name}_megaflops" for name in COUNTED),
        *(f"{name}_ops" for name in CLASSES),
        *(f"{name}_kilobytes" for name in CLASSES),
    ),
}


@dataclass(frozen=True, eq=False)
class Sample:
    """Node features and edges of a graph."""

    features: FloatArray
    """[M, F], not scaled."""
    edges: IntArray
    """[E, 2], undirected: each pair once, the smaller number first."""


class Featuriser:
    """Turns graphs into samples by the kind of features and the grouping recipe. Stored with the inspector."""

    def __init__(self, kind: str, recipe: Recipe, loops: str = EVERY) -> None:
        one_of("features", kind, FEATURE_KINDS)
        one_of("loops", loops, LOOPS)
        self.kind = kind
        self.recipe = recipe
        self.loops = loops
        """As InspectorConfig.loops; workload features of the inspector count alike."""
        self.names = NAMES[kind]
        # Grouping takes long, and several workloads share a graph. By the length of loops.
        self._made: WeakKeyDictionary[Graph, dict[int, Sample]] = WeakKeyDictionary()

    def sample_of(self, example: Example) -> Sample:
        """The sample of a workload; the same object for workloads that share a graph."""
        return self.sample(example.graph, loop_length(example.workload))

    def sample(self, graph: Graph, length: int = 1) -> Sample:
        """The sample of a graph whose loops have this many iterations."""
        kept = self._made.setdefault(graph, {})
        length = length if self.loops == EVERY else 1
        if length not in kept:
            kept[length] = self._published(graph) if isinstance(graph, PublishedGraph) else self._grouped(graph, length)
        return kept[length]

    def _published(self, graph: PublishedGraph) -> Sample:
        if self.kind == PAPER:
            return Sample(graph.features, graph.edges)
        features = np.zeros((len(graph.features), len(self.names)))
        features[:, :3] = graph.features / [1.0, KILOBYTE, 1.0]
        return Sample(features, graph.edges)

    def _grouped(self, graph: OpGraph, length: int) -> Sample:
        grouped = self.recipe.group(graph)
        edges = undirected(grouped.edges, len(grouped.features))
        if self.kind == PAPER:
            return Sample(grouped.features, edges)
        count = len(grouped.features)
        runs = graph.executions(length)
        flops = np.nan_to_num(graph.flops, nan=0.0) / MEGAFLOP * runs
        classes = class_numbers(graph.ops)

        def per_class(weights: FloatArray) -> FloatArray:
            cells = np.bincount(grouped.groups * len(CLASSES) + classes, weights, minlength=count * len(CLASSES))
            return cells.reshape(count, len(CLASSES))

        class_flops = per_class(flops)
        features = np.concatenate(
            [
                grouped.features[:, :1],
                np.bincount(grouped.groups, graph.bytes * runs, minlength=count)[:, None] / KILOBYTE,
                grouped.features[:, 2:],
                class_flops.sum(axis=1, keepdims=True),
                class_flops[:, [CLASSES.index(name) for name in COUNTED]],
                per_class(np.ones(len(graph.ops))),
                per_class(graph.bytes / KILOBYTE * runs),
            ],
            axis=1,
        )
        return Sample(features, edges)

    def to_plain(self) -> dict[str, Any]:
        """For inspector.json."""
        return {
            "kind": self.kind,
            "names": list(self.names),
            "recipe": to_plain(self.recipe),
            "loops": self.loops,
        }

    @classmethod
    def from_plain(cls, value: Any) -> Featuriser:
        """The reverse of `to_plain`.

        Raises:
            BadInput: it is malformed, or has features that this release does not make.
        """
        if not isinstance(value, dict) or set(value) - {"loops"} != {"kind", "names", "recipe"}:
            raise BadInput("features: expected kind, names, recipe and loops")
        recipe = from_plain(Recipe, value["recipe"], "features.recipe")
        found = cls(value["kind"], recipe, value.get("loops", ONCE))  # earlier releases counted loops once
        if list(found.names) != value["names"]:
            raise BadInput(f"features of kind {found.kind!r} that this release does not make; train again")
        return found
