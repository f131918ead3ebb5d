"""Examples: workloads to train on, to evaluate on, and to predict."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput, UnknownName
from driple.contracts.formats.dataset import SIDES, SPLITS
from driple.contracts.json_values import content_hash
from driple.contracts.metrics import COLUMNS
from driple.inspector.data.array_types import BoolArray, FloatArray, IntArray
from driple.pipeline.graph.public import FEATURES, OpGraph, Recipe, SizeBatches, recipe_of

MOST = 1e18
"""Of anything that is measured or asked for: bytes a second of all networks together are less."""

LEAST_TRAIN = 8
"""Examples on the training side with which a training is begun."""
LEAST_VALUES = 5
"""Training examples that know a target, so that it is learned."""

WORKLOAD = (
    *("model", "family", "dataset", "batch_size", "optimiser", "update", "image_size", "sequence_length", "width"),
    *("strategy", "sharding", "framework", "code_sha256"),
    *("network_rate_mbit", "network_delay_ms", "network_loss_pct", "placement", "threads"),
)
"""Columns that say what ran. Rows that agree in all of them, and in the graph, are one example."""
OF_THE_JOB = WORKLOAD[: WORKLOAD.index("placement")]
"""Those that say it of a job, and under which conditions, wherever it runs."""


@dataclass(frozen=True, eq=False)
class PublishedGraph:
    """A graph that came grouped, from the authors' files: it has three features a node and nothing else."""

    features: FloatArray
    """[M, 3], columns as FEATURES."""
    edges: IntArray
    """[E, 2]: each pair once, the smaller number first."""

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
    """A workload on the setting, as one role sees it."""

    workload: dict[str, Any]
    """Columns of WORKLOAD; None where unknown."""
    graph: Graph
    """Examples of one graph share it."""
    graph_key: str
    received_bytes: float | None = None
    """Bytes of tensors that come from other devices to the worker in a step; None where unknown."""
    sent_bytes: float | None = None
    """Bytes of tensors that leave it in a step."""
    busiest_bytes: float | None = None
    """Of those received, those of the one task that gives most."""
    columns: tuple[str, ...] = COLUMNS
    """Names of the targets."""
    targets: FloatArray = dataclasses.field(default_factory=lambda: np.full(len(COLUMNS), np.nan))
    """[columns]; NaN where it is null in every row."""
    rows: int = 0
    """That were averaged."""
    split_architecture: str | None = None
    split_random: str | None = None
    run_ids: tuple[str, ...] = ()


def job_of(example: Example) -> str | None:
    """The same for the same job on every setting: of published rows, which name no model, that of the graph."""
    if example.workload.get("model") is None:
        return example.graph_key or None
    return content_hash({name: example.workload.get(name) for name in OF_THE_JOB}, version=1)


def unmeasured(graph: Graph, workload: Mapping[str, Any]) -> Example:
    """A workload that did not run: what a prediction is asked for.

    Args:
        graph: of its worker; what crosses to and from other tasks it says itself, where it names them.
        workload: any of WORKLOAD; what is left out is unknown.

    Raises:
        UnknownName: the workload has something that is not of WORKLOAD.
    """
    for name in workload:
        if name not in WORKLOAD:
            raise UnknownName("fact of a workload", name, WORKLOAD)
    ops = graph if isinstance(graph, OpGraph) else None
    return Example(
        workload={name: workload.get(name) for name in WORKLOAD},
        graph=graph,
        graph_key="",
        received_bytes=None if ops is None else _known(ops.bytes_received),
        sent_bytes=None if ops is None else _known(ops.bytes_sent),
        busiest_bytes=None if ops is None else _known(ops.bytes_busiest),
    )


def _known(size: float) -> float | None:
    return None if math.isnan(size) else size


@dataclass(frozen=True, eq=False, kw_only=True)
class Examples:
    """The examples of one setting and role, in the order of the file."""

    setting: str
    role: str
    provenance: str
    """`measured`, `simulated` or `published`, the same for all."""
    sha256: str
    """Of the file."""
    frequency: dict[str, float]
    """Of op types over the file; of a published one, the table that its authors published."""
    batches: SizeBatches
    items: tuple[Example, ...]

    def __len__(self) -> int:
        return len(self.items)

    def side(self, split: str, side: str) -> Examples:
        """Those on one side of a split."""
        if split not in SPLITS:
            raise UnknownName("split", split, SPLITS)
        if side not in SIDES:
            raise UnknownName("side", side, SIDES)
        kept = tuple(item for item in self.items if getattr(item, f"split_{split}") == side)
        return dataclasses.replace(self, items=kept)

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the targets."""
        return self.items[0].columns if self.items else COLUMNS

    def select(self, columns: tuple[str, ...]) -> Examples:
        """The same examples with these targets; NaN where they have none of that name."""
        return dataclasses.replace(self, items=select(self.items, columns))

    def targets(self) -> FloatArray:
        """[n, columns]; NaN where null."""
        return np.array([item.targets for item in self.items], dtype=np.float64).reshape(-1, len(self.columns))

    def recipe(self, policy: str, seed: int = 0) -> Recipe:
        """How graphs are grouped by what these examples show; kept with the inspector that learns from them."""
        graphs = {id(item.graph): item.graph for item in self.items}.values()
        ops = [graph for graph in graphs if isinstance(graph, OpGraph)]
        if ops:
            return recipe_of(ops, policy, seed)
        return Recipe(policy, dict(self.frequency), self.batches, seed)


def select(items: Iterable[Example], columns: tuple[str, ...]) -> tuple[Example, ...]:
    """The examples with these targets; NaN where one has none of that name."""
    return tuple(item if item.columns == columns else _with_columns(item, columns) for item in items)


def _with_columns(item: Example, columns: tuple[str, ...]) -> Example:
    known = dict(zip(item.columns, item.targets, strict=True))
    return dataclasses.replace(item, columns=columns, targets=np.array([known.get(name, np.nan) for name in columns]))


def usable(train: Examples, least: int = LEAST_VALUES) -> BoolArray:
    """[columns]: the targets that enough of the training examples know."""
    return (~np.isnan(train.targets())).sum(axis=0) >= least


def enough(examples: Examples, split: str) -> None:
    """Makes sure that there is something to learn from, to choose by and to judge on.

    Raises:
        BadInput: one family of models only, an empty side, too few training examples, or none with targets.
    """
    families = {item.workload["family"] for item in examples.items}
    if split == "architecture":
        if families == {None}:
            raise BadInput("the rows do not say their model, so there is no split by architecture: use --split random")
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
