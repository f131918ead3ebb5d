"""Workload features: everything known of a workload before it runs as one vector, from its options and its graph.

Sizes are logarithms; amounts of work are log1p in units in which less than 1 hardly matters. Values that are unknown or
do not exist (the image size of a language model) are NaN, and become the training mean when features are scaled. The
network and every baseline receive the same features.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from driple.contracts.formats.dataset import NETWORK_CHOICES, NETWORK_COLUMNS
from driple.contracts.run_spec import Workload
from driple.contracts.strategy import BACKENDS, FRAMEWORKS, GLOO, GRPC, TOPOLOGIES
from driple.inspector.data.array_types import FloatArray
from driple.inspector.data.examples import Example, Graph, PublishedGraph, loop_length
from driple.inspector.data.node_features import KILOBYTE, MEGAFLOP
from driple.inspector.model.model_config import EVERY
from driple.pipeline.graph.public import CLASSES, OpGraph, class_numbers

SIZES = ("batch_size", "image_size", "sequence_length", "width", "network_rate_mbit")
_OPTIMISERS = ("sgd", "momentum", "rmsprop", "adam")

_CONDITIONS = {
    name if name.endswith("_pct") else f"log_{name}": name
    for name in NETWORK_COLUMNS
    if name not in SIZES and name not in NETWORK_CHOICES
}
"""Column of each feature of the network condition; a share is no logarithm, because a little loss matters much."""
_CHOICES = {f"is_{choice}": (name, choice) for name, choices in NETWORK_CHOICES.items() for choice in choices}
_FIRST = {"framework": Workload.framework, "backend": (GRPC, GLOO), "topology": Workload.topology}
"""What workloads had before there was a choice, and what comes with a framework."""
_KNOWN = {"framework": tuple(FRAMEWORKS), "backend": tuple(BACKENDS), "topology": TOPOLOGIES}
_RUNTIMES = {
    f"is_{choice}": (name, choice)
    for name, choices in _KNOWN.items()
    for choice in choices
    if choice not in _FIRST[name]
}

RUNTIME_FEATURES = tuple(_RUNTIMES)
"""What trains the workload and carries its tensors: 0 in all rows of releases that had no choice."""

DECLARED_FEATURES = (
    *(f"log_{name}" for name in SIZES),
    *("has_images", "has_sequences", "is_async", "is_allreduce", "is_limited"),
    *(f"is_{name}" for name in _OPTIMISERS),
    *(*_CONDITIONS, *_CHOICES, *RUNTIME_FEATURES, "log_threads"),
    *("log_received_kilobytes", "log_sent_kilobytes", "log_busiest_kilobytes"),
)
GRAPH_FACTS = (
    *("log_ops", "log_edges", "log_levels", "log_kilobytes", "log_megaflops"),
    *("log_largest_kilobytes", "log_largest_megaflops"),
    *(f"log_{name}_ops" for name in CLASSES),
    *(f"log_{name}_kilobytes" for name in CLASSES),
    *(f"log_{name}_megaflops" for name in CLASSES),
)
WORKLOAD_FEATURES: tuple[str, ...] = (*DECLARED_FEATURES, *GRAPH_FACTS)

FEATURE_CACHE: WeakKeyDictionary[Graph, dict[int, dict[str, float]]] = WeakKeyDictionary()
"""Of a graph, by the length of its loops."""


def workload_features(example: Example, loops: str = EVERY) -> FloatArray:
    """[len(WORKLOAD_FEATURES)], not scaled; NaN where unknown. `loops`: see InspectorConfig."""
    graph, length = example.graph, loop_length(example.workload) if loops == EVERY else 1
    kept = FEATURE_CACHE.setdefault(graph, {})
    if length not in kept:
        kept[length] = _of_groups(graph) if isinstance(graph, PublishedGraph) else _of_ops(graph, length)
    found = {**_of_workload(example), **kept[length]}
    return np.array([found.get(name, math.nan) for name in WORKLOAD_FEATURES])


def workload_feature_table(examples: Iterable[Example], loops: str = EVERY) -> FloatArray:
    """[n, len(WORKLOAD_FEATURES)]."""
    return np.array([workload_features(example, loops) for example in examples]).reshape(-1, len(WORKLOAD_FEATURES))


def _of_workload(example: Example) -> dict[str, float]:
    workload = example.workload
    found = {f"log_{name}": _log(workload.get(name)) for name in SIZES}
    found["log_received_kilobytes"] = _log1p(example.received_bytes, KILOBYTE)
    found["log_sent_kilobytes"] = _log1p(example.sent_bytes, KILOBYTE)
    # Unknown in older rows: most settings have one server, which sends everything.
    busiest = example.received_bytes if example.busiest_bytes is None else example.busiest_bytes
    found["log_busiest_kilobytes"] = _log1p(busiest, KILOBYTE)
    for feature, name in _CONDITIONS.items():
        value = workload.get(name)
        found[feature] = _log1p(value) if feature != name else math.nan if value is None else float(value)
    found |= {feature: _is(workload, name, choice) for feature, (name, choice) in _CHOICES.items()}
    if workload.get("framework") is not None:  # rows of earlier releases have no backend and no topology
        found |= {feature: float(workload.get(name) == choice) for feature, (name, choice) in _RUNTIMES.items()}
    found["log_threads"] = _log1p(workload.get("threads"))
    found["is_async"] = _is(workload, "update", "async")
    found["is_allreduce"] = _is(workload, "strategy", "allreduce")
    found |= {f"is_{name}": _is(workload, "optimiser", name) for name in _OPTIMISERS}
    # Of a published row this is unknown, and of a model in a file whose dataset nobody named.
    if workload.get("model") is not None and workload.get("dataset") is not None:
        found["has_images"] = float(workload.get("image_size") is not None)
        found["has_sequences"] = float(workload.get("sequence_length") is not None)
        found["is_limited"] = float(workload.get("network_rate_mbit") is not None)
    return found


def _of_ops(graph: OpGraph, length: int) -> dict[str, float]:
    # FLOPs and bytes are those of a step. Ops are those of the graph: an op of a loop costs less than others, and with
    # all executions a model that knew no loops overestimated them by far.
    runs = graph.executions(length)
    kilobytes = graph.bytes / KILOBYTE
    # NaN is an op without a formula: next to nothing beside other ops, unknown if the whole graph has none.
    flops = np.nan_to_num(graph.flops, nan=0.0) / MEGAFLOP
    if np.isnan(graph.flops).all():
        flops = np.full(len(graph.ops), math.nan)
    classes = class_numbers(graph.ops)
    found = {
        "log_ops": math.log1p(len(graph.ops)),
        "log_edges": math.log1p(len(graph.edges)),
        "log_levels": math.log1p(1.0 + float(graph.levels.max())),
        "log_largest_kilobytes": math.log1p(kilobytes.max()),
        "log_largest_megaflops": math.log1p(flops.max()),
        "log_kilobytes": math.log1p((kilobytes * runs).sum()),
        "log_megaflops": math.log1p((flops * runs).sum()),
    }
    for unit, weights in (("ops", None), ("kilobytes", kilobytes * runs), ("megaflops", flops * runs)):
        sums = np.bincount(classes, weights, minlength=len(CLASSES))
        found |= {f"log_{name}_{unit}": math.log1p(amount) for name, amount in zip(CLASSES, sums, strict=True)}
    if np.isnan(flops).all():
        found |= {name: math.nan for name in found if name.endswith("_megaflops")}
    return found


def _of_groups(graph: PublishedGraph) -> dict[str, float]:
    _, sizes, ops = graph.features.T
    return {
        "log_ops": _log1p(ops.sum()),
        "log_edges": math.log1p(len(graph.edges)),
        "log_kilobytes": _log1p(sizes.sum(), KILOBYTE),
        "log_largest_kilobytes": _log1p(sizes.max(), KILOBYTE),
    }


def _log(value: Any) -> float:
    return math.log(value) if value is not None and value > 0 else math.nan


def _log1p(value: Any, unit: float = 1.0) -> float:
    return math.nan if value is None or not value >= 0 else math.log1p(value / unit)


def _is(workload: Mapping[str, Any], name: str, value: str) -> float:
    found = workload.get(name)
    return math.nan if found is None else float(found == value)
