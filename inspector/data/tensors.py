"""From examples to tensors: Examples --Featuriser--> samples --scalers--> Prepared --batches--> Batch.

`Preparation` is fitted on training rows and stored with the inspector, so that predicting prepares as training did.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from driple.contracts.errors import BadInput
from driple.contracts.json_values import from_plain, to_plain
from driple.inspector.data.array_types import BoolArray, FloatArray
from driple.inspector.data.examples import Example, Examples, job_of, select, usable
from driple.inspector.data.node_features import Featuriser
from driple.inspector.data.scaling import FeatureScaler, TargetScaler, WorkloadScaler
from driple.inspector.data.workload_features import workload_feature_table
from driple.inspector.model.model_config import InspectorConfig
from driple.inspector.network.batching.execution_choice import Batcher

FAR = 2.5
"""Deviations at which features are clipped: a linear fit on small models is wrong far outside them."""


class Batch(NamedTuple):
    """Rows for one call of the network."""

    graphs: Any
    facts: Any
    """[B, D]"""
    targets: Any
    """[B, T], scaled; 0 where unknown."""
    mask: Any
    """[B, T]: 1 where known, else 0."""


@dataclass(frozen=True, eq=False)
class Prepared:
    """Rows as tensors."""

    features: list[Any]
    edges: list[Any]
    facts: Any
    targets: Any
    mask: Any
    truth: FloatArray
    """[n, T], in the targets' own units; NaN where unknown or not usable."""
    families: tuple[str | None, ...]
    jobs: tuple[str | None, ...]
    """examples.job_of of each row."""
    raw_facts: FloatArray
    """[n, len(WORKLOAD_FEATURES)], not scaled, for the base model."""

    def __len__(self) -> int:
        return len(self.features)

    def with_plain(self, said: FloatArray) -> Prepared:
        """The same rows with base predictions [n, T] as further features."""
        added = torch.as_tensor(said, dtype=torch.float32)
        return dataclasses.replace(self, facts=torch.cat([self.facts, added], dim=1))

    def sizes(self) -> list[int]:
        """Nodes of each graph."""
        return [len(nodes) for nodes in self.features]

    def batches(self, order: Sequence[int], size: int, build: Batcher, device: str = "cpu") -> Iterator[Batch]:
        for start in range(0, len(order), size):
            rows = list(order[start : start + size])
            graphs = build([self.features[row] for row in rows], [self.edges[row] for row in rows])
            tables = (each[rows].to(device) for each in (self.facts, self.targets, self.mask))
            yield Batch(graphs if device == "cpu" else graphs.to(device), *tables)


@dataclass(frozen=True, eq=False, kw_only=True)
class Preparation:
    """Turns examples into tensors, and outputs into values."""

    featuriser: Featuriser
    features: FeatureScaler
    facts: WorkloadScaler
    targets: TargetScaler

    @classmethod
    def fit(cls, train: Examples, config: InspectorConfig, featuriser: Featuriser | None = None) -> Preparation:
        """Fitted to the training rows; a featuriser that has grouped these graphs before saves time."""
        if featuriser is None:
            featuriser = Featuriser(config.features, train.recipe(config.grouping), config.loops)
        samples = {id(sample): sample for sample in map(featuriser.sample_of, train.items)}.values()
        return cls(
            featuriser=featuriser,
            features=FeatureScaler.fit(config.feature_scale, [sample.features for sample in samples]),
            facts=WorkloadScaler.fit(workload_feature_table(train.items, featuriser.loops)),
            targets=TargetScaler.fit(config.target_scale, train.targets(), usable(train), train.columns),
        )

    def for_targets_of(self, train: Examples) -> Preparation:
        """The same inputs with a scaler of other targets, for a transfer."""
        scaler = TargetScaler.fit(self.targets.kind, train.targets(), usable(train), train.columns)
        return dataclasses.replace(self, targets=scaler)

    @property
    def usable(self) -> BoolArray:
        return np.asarray(self.targets.usable, dtype=bool)

    def apply(self, examples: Examples | Sequence[Example]) -> Prepared:
        items = select(examples.items if isinstance(examples, Examples) else examples, self.targets.columns)
        samples = [self.featuriser.sample_of(item) for item in items]
        tensors: dict[int, tuple[Any, Any]] = {}
        for sample in samples:
            if id(sample) not in tensors:
                scaled = torch.as_tensor(self.features.transform(sample.features), dtype=torch.float32)
                tensors[id(sample)] = scaled, torch.as_tensor(sample.edges, dtype=torch.int64)
        raw_facts = workload_feature_table(items, self.featuriser.loops)
        truth = np.where(self.usable, np.array([item.targets for item in items]), np.nan)
        known = ~np.isnan(truth)
        targets = np.where(known, self.targets.transform(truth), 0.0)
        return Prepared(
            features=[tensors[id(sample)][0] for sample in samples],
            edges=[tensors[id(sample)][1] for sample in samples],
            facts=torch.as_tensor(np.clip(self.facts.transform(raw_facts), -FAR, FAR), dtype=torch.float32),
            targets=torch.as_tensor(targets, dtype=torch.float32),
            mask=torch.as_tensor(known, dtype=torch.float32),
            truth=truth,
            families=tuple(item.workload.get("family") for item in items),
            jobs=tuple(job_of(item) for item in items),
            raw_facts=raw_facts,
        )

    def values(self, outputs: Any, **limits: float) -> FloatArray:
        """Outputs of a network [n, T] in the targets' own units; NaN where a target is not usable."""
        return self.targets.inverse(outputs.detach().cpu().double().numpy(), **limits)

    def to_plain(self) -> dict[str, Any]:
        """For inspector.json."""
        scalers = {name: to_plain(getattr(self, name)) for name in _SCALERS}
        return {"features": self.featuriser.to_plain(), "scalers": scalers}

    @classmethod
    def from_plain(cls, features: Any, scalers: Any) -> Preparation:
        """The reverse of `to_plain`.

        Raises:
            BadInput: something is missing or of another form.
        """
        if not isinstance(scalers, dict) or set(scalers) != set(_SCALERS):
            raise BadInput(f"scalers: expected {', '.join(_SCALERS)}")
        made = {name: from_plain(kind, scalers[name], f"scalers.{name}") for name, kind in _SCALERS.items()}
        return cls(featuriser=Featuriser.from_plain(features), **made)


_SCALERS: dict[str, Any] = {"features": FeatureScaler, "facts": WorkloadScaler, "targets": TargetScaler}
