"""Examples: workloads to train on, to evaluate on, and to predict."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput, UnknownName
from driple.contracts.formats.dataset import NETWORK_COLUMNS, SIDES, SPLITS
from driple.contracts.json_values import content_hash
from driple.contracts.metrics import COLUMNS
from driple.contracts.strategy import GLOO, GRPC, RING
from driple.inspector.data.array_types import BoolArray, FloatArray, IntArray
from driple.pipeline.graph.public import FEATURES, OpGraph, Recipe, SizeBatches, recipe_of

MOST = 1e18
"""Greatest value accepted of any measured or requested amount."""

LEAST_TRAIN = 8
"""Fewest training examples for a training."""
LEAST_VALUES = 5
"""Fewest training values of a target that is learned."""

WORKLOAD = (
    *("model", "family", "dataset", "batch_size", "optimiser", "update", "image_size", "sequence_length", "width"),
    *("strategy", "sharding", "framework", "backend", "topology", "code_sha256"),
    *(*NETWORK_COLUMNS, "placement", "threads"),
)
"""Columns that describe a workload. Rows that agree in all of them and in the graph are one example."""
OF_THE_JOB = WORKLOAD[: WORKLOAD.index("placement")]
"""Those that do not depend on where the job runs."""
_USUAL = {"backend": (None, GRPC, GLOO), "topology": (None, RING)}
"""Options that keys of workloads name only where they have another value."""
_FIRST_CONDITIONS = ("network_rate_mbit", "network_delay_ms", "network_loss_pct")
"""Always part of `job_of`."""


@dataclass(frozen=True, eq=False)
class PublishedGraph:
    """A graph of the authors' files, grouped already: three features per node and nothing else."""

    features: FloatArray
    """[M, 3], columns as FEATURES."""
    edges: IntArray
    """[E, 2], undirected: each pair once, the smaller number first."""

    def __post_init__(self) -> None:
        if self.features.ndim != 2 or self.features.shape[1] != len(FEATURES) or not len(self.features):
            raise BadInput(
                f"features of shape {self.features.shape}: expected [M, {len(FEATURES)}] and at least one node"
            )
        if self.edges.ndim != 2 or self.edges.shape[1] != 2:
            raise BadInput(f"edges of shape {self.edges.shape}: expected [E, 2]")
        if self.edges.size and not 0 <= self.edges.min() <= self.edges.max() < len(self.features):
            raise BadInput(f"an edge beyond the {len(self.features)} groups of its graph")


Graph = OpGraph | PublishedGraph


@dataclass(frozen=True, eq=False, kw_only=True)
class Example:
    """A workload on a setting, for one role."""

    workload: dict[str, Any]
    """Columns of WORKLOAD; None where unknown."""
    graph: Graph
    """Examples of one graph share it."""
    graph_key: str
    received_bytes: float | None = None
    """Bytes of tensors that the worker receives in a step; None where unknown."""
    sent_bytes: float | None = None
    busiest_bytes: float | None = None
    """Bytes received from the task that sends most."""
    columns: tuple[str, ...] = COLUMNS
    targets: FloatArray = dataclasses.field(default_factory=lambda: np.full(len(COLUMNS), np.nan))
    """Means over `rows` rows, [columns]; NaN where null in every row."""
    rows: int = 0
    split_architecture: str | None = None
    split_random: str | None = None
    run_ids: tuple[str, ...] = ()


def job_of(example: Example) -> str | None:
    """A key that is the same for a job on every setting; of published rows, which have no model, that of the graph."""
    if example.workload.get("model") is None:
        return example.graph_key or None
    values = {name: example.workload.get(name) for name in OF_THE_JOB}
    # Inspectors store these keys: a condition that is newer than they are counts only where it was asked for.
    unused = [name for name, value in NETWORK_COLUMNS.items() if values[name] in (None, value)]
    unused += [name for name, usual in _USUAL.items() if values[name] in usual]
    kept = {name: value for name, value in values.items() if name not in unused or name in _FIRST_CONDITIONS}
    return content_hash(kept, version=1)


def loop_length(workload: Mapping[str, Any]) -> int:
    """Iterations of each loop of a graph: elements of a sequence; 1 where that is unknown."""
    return int(workload.get("sequence_length") or 1)


def unmeasured(graph: Graph, workload: Mapping[str, Any]) -> Example:
    """A workload to predict, by the graph of its worker and any of the columns in WORKLOAD.

    Raises:
        UnknownName: the workload has a key that is not in WORKLOAD.
    """
    for name in workload:
        if name not in WORKLOAD:
            raise UnknownName("workload option", name, WORKLOAD)
    traffic = {}
    if isinstance(graph, OpGraph):
        sizes = {name: getattr(graph, f"bytes_{name}") for name in ("received", "sent", "busiest")}
        traffic = {f"{name}_bytes": size for name, size in sizes.items() if not math.isnan(size)}
    return Example(workload={name: workload.get(name) for name in WORKLOAD}, graph=graph, graph_key="", **traffic)


@dataclass(frozen=True, eq=False, kw_only=True)
class Examples:
    """The examples of one setting and role, in the order of the file."""

    setting: str
    role: str
    provenance: str
    """`measured`, `simulated` or `published`, the same for all."""
    sha256: str
    """Checksum of the file."""
    frequency: dict[str, float]
    """Frequencies of op types over the file; of a published one, the authors' table."""
    batches: SizeBatches
    items: tuple[Example, ...]

    def __len__(self) -> int:
        return len(self.items)

    def side(self, split: str, side: str) -> Examples:
        for kind, name, known in (("split", split, SPLITS), ("side", side, SIDES)):
            if name not in known:
                raise UnknownName(kind, name, known)
        kept = tuple(item for item in self.items if getattr(item, f"split_{split}") == side)
        return dataclasses.replace(self, items=kept)

    @property
    def columns(self) -> tuple[str, ...]:
        return self.items[0].columns if self.items else COLUMNS

    def select(self, columns: tuple[str, ...]) -> Examples:
        return dataclasses.replace(self, items=select(self.items, columns))

    def targets(self) -> FloatArray:
        """[n, columns]; NaN where null."""
        return np.array([item.targets for item in self.items], dtype=np.float64).reshape(-1, len(self.columns))

    def recipe(self, policy: str, seed: int = 0) -> Recipe:
        """How graphs are grouped, from the statistics of these examples; stored with the inspector."""
        graphs = {id(item.graph): item.graph for item in self.items}.values()
        ops = [graph for graph in graphs if isinstance(graph, OpGraph)]
        if ops:
            return recipe_of(ops, policy, seed)
        return Recipe(policy, dict(self.frequency), self.batches, seed)


def select(items: Iterable[Example], columns: tuple[str, ...]) -> tuple[Example, ...]:
    """The examples with these targets; NaN where one has none of that name."""
    return tuple(_with_columns(item, columns) for item in items)


def _with_columns(item: Example, columns: tuple[str, ...]) -> Example:
    if item.columns == columns:
        return item
    known = dict(zip(item.columns, item.targets, strict=True))
    return dataclasses.replace(item, columns=columns, targets=np.array([known.get(name, np.nan) for name in columns]))


def usable(train: Examples, least: int = LEAST_VALUES) -> BoolArray:
    """[columns]: whether a target has enough training values."""
    return (~np.isnan(train.targets())).sum(axis=0) >= least


def enough(examples: Examples, split: str) -> None:
    """Checks that there are enough rows for training, validation and test.

    Raises:
        BadInput: one family of models only, an empty side, too few training examples, or none with targets.
    """
    families = {item.workload["family"] for item in examples.items}
    if split == "architecture":
        if families == {None}:
            raise BadInput("the rows have no model names, so there is no split by architecture: use --split random")
        if len(families) == 1:
            raise BadInput(
                f"all rows are of one family of models, {families.pop()}, and a split by architecture needs several:"
                f" measure another family, or use --split random"
            )
    counts = {side: len(examples.side(split, side)) for side in SIDES}
    by_random = [len(examples.side("random", side)) for side in SIDES]
    other = ", or use --split random" if split != "random" and min(by_random) and by_random[0] >= LEAST_TRAIN else ""
    empty = [side for side, count in counts.items() if not count]
    if empty:
        raise BadInput(
            f"no rows on side {' and '.join(empty)} of the {split} split ({len(examples)} workloads, {len(families)}"
            f" families): measure more workloads{other}"
        )
    if counts["train"] < LEAST_TRAIN:
        raise BadInput(
            f"{counts['train']} workloads to train on in the {split} split, at least {LEAST_TRAIN} are needed: measure"
            f" more workloads{other}"
        )
    learned = usable(examples.side(split, "train"))
    if not learned.any():
        raise BadInput(
            f"no target is known in {LEAST_VALUES} or more training rows of role {examples.role}: nothing to learn"
        )
    for side, purpose in (("val", "to choose by"), ("test", "to judge on")):
        if np.isnan(examples.side(split, side).targets()[:, learned]).all():
            raise BadInput(
                f"all targets are null on side {side} of the {split} split, role {examples.role}: nothing {purpose}"
            )
