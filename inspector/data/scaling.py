"""Scalers of node features, workload features and targets, fitted on training rows and stored in inspector.json."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from driple.contracts.errors import BadInput
from driple.contracts.metrics import COLUMNS
from driple.inspector.data.array_types import BoolArray, FloatArray
from driple.inspector.data.workload_features import WORKLOAD_FEATURES
from driple.inspector.model.model_config import FEATURE_SCALES, TARGET_SCALES, one_of

RAW = "raw"
MAX = "max"
FAR = 10.0
"""A prediction is at most this many times the greatest training value."""
_FLAT = 1e-9
"""A column counts as constant if its deviation is a smaller share of its mean."""


@dataclass(frozen=True)
class FeatureScaler:
    """Node features: unchanged (`raw`), or log1p, then mean 0 and deviation 1 over all training nodes."""

    kind: str
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __post_init__(self) -> None:
        one_of("feature_scale", self.kind, FEATURE_SCALES)
        _same_length(self.mean, self.deviation)
        _positive(self.deviation)

    @classmethod
    def fit(cls, kind: str, features: Iterable[FloatArray]) -> FeatureScaler:
        """From the features [M, F] of each training graph."""
        one_of("feature_scale", kind, FEATURE_SCALES)
        nodes = np.concatenate(list(features))
        if kind == RAW:
            return cls(kind, (0.0,) * nodes.shape[1], (1.0,) * nodes.shape[1])
        mean, deviation = _moments(_log1p(nodes))
        return cls(kind, _plain(mean), _plain(np.where(deviation > 0, deviation, 1.0)))

    def transform(self, features: FloatArray) -> FloatArray:
        if features.shape[1] != len(self.mean):
            raise BadInput(f"{features.shape[1]} features of a node, the scaler expects {len(self.mean)}")
        if self.kind == RAW:
            return features
        return (_log1p(features) - self.mean) / self.deviation


@dataclass(frozen=True)
class WorkloadScaler:
    """Workload features: mean 0 and deviation 1; unknown values become 0; constant features are left out."""

    names: tuple[str, ...]
    """Features that are used. Those that a later release adds are ignored."""
    mean: tuple[float, ...]
    deviation: tuple[float, ...]

    def __post_init__(self) -> None:
        _same_length(self.names, self.mean, self.deviation)
        _positive(self.deviation)
        for name in self.names:
            one_of("workload feature", name, WORKLOAD_FEATURES)

    def __len__(self) -> int:
        return len(self.names)

    @classmethod
    def fit(cls, facts: FloatArray) -> WorkloadScaler:
        """From the features [n, len(WORKLOAD_FEATURES)] of the training rows."""
        mean, deviation = _moments(facts)
        kept = np.flatnonzero(deviation > 0)
        return cls(tuple(WORKLOAD_FEATURES[column] for column in kept), _plain(mean[kept]), _plain(deviation[kept]))

    def transform(self, facts: FloatArray) -> FloatArray:
        """[n, len(WORKLOAD_FEATURES)] to [n, len(self)]."""
        if facts.ndim != 2 or facts.shape[1] != len(WORKLOAD_FEATURES):
            raise BadInput(f"workload features of shape {facts.shape}: expected [n, {len(WORKLOAD_FEATURES)}]")
        columns = [WORKLOAD_FEATURES.index(name) for name in self.names]
        return np.nan_to_num((facts[:, columns] - self.mean) / self.deviation, nan=0.0)


@dataclass(frozen=True)
class TargetScaler:
    """Targets.

    `max` is the share of the training maximum, as published. `log` is log(y + c), then mean 0 and deviation 1, so that
    relative errors count. c is 1 % of the median of the positive training values: it admits 0 and damps tiny values.
    """

    kind: str
    usable: tuple[bool, ...]
    """Targets with enough training rows; the others are NaN in predictions."""
    offset: tuple[float, ...]
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    greatest: tuple[float, ...]
    """Greatest training values."""
    columns: tuple[str, ...] = COLUMNS

    def __post_init__(self) -> None:
        one_of("target_scale", self.kind, TARGET_SCALES)
        _same_length(self.columns, self.usable, self.offset, self.mean, self.deviation, self.greatest)
        _positive(self.deviation)
        if min(self.offset) < 0:
            raise BadInput("a target scaler with a negative offset")

    @classmethod
    def fit(cls, kind: str, targets: FloatArray, usable: BoolArray, columns: tuple[str, ...] = COLUMNS) -> TargetScaler:
        """From the training targets [n, T], NaN where null; `usable` are those to learn."""
        one_of("target_scale", kind, TARGET_SCALES)
        offset, mean = np.zeros((2, len(columns)))
        deviation, greatest = np.ones((2, len(columns)))
        for column in np.flatnonzero(usable):
            values = targets[:, column][~np.isnan(targets[:, column])]
            if not len(values):
                raise BadInput(f"{columns[column]}: no training value to fit a scaler to")
            greatest[column] = values.max()
            if kind == MAX:
                deviation[column] = values.max() if values.max() > 0 else 1.0
                continue
            positive = values[values > 0]
            offset[column] = 0.01 * np.median(positive) if len(positive) else 1.0
            logs = np.log(np.maximum(values, 0.0) + offset[column])
            mean[column] = logs.mean()
            deviation[column] = logs.std() if logs.std() > _FLAT else 1.0
        used = tuple(bool(one) for one in usable)
        return cls(kind, used, _plain(offset), _plain(mean), _plain(deviation), _plain(greatest), columns)

    def transform(self, targets: FloatArray) -> FloatArray:
        """[n, T] to [n, T]; NaN where null or not usable."""
        values = np.where(self.usable, targets, np.nan)
        if self.kind == MAX:
            return values / self.deviation
        offset = np.where(self.usable, self.offset, 1.0)
        return (np.log(np.maximum(values, 0.0) + offset) - self.mean) / self.deviation

    def inverse(self, scaled: FloatArray, *, far: float = FAR) -> FloatArray:
        """[n, T] in the targets' own units, from 0 to `far` times the training maximum; NaN where not usable."""
        values = scaled * np.asarray(self.deviation)
        ceiling = self._ceiling(far)
        if self.kind != MAX:
            offset = np.asarray(self.offset)
            highest = np.log(np.where(self.usable, ceiling + offset, 1.0))
            values = np.exp(np.minimum(values + self.mean, highest)) - offset
        return np.where(self.usable, np.clip(values, 0.0, ceiling), np.nan)

    def at_limit(self, values: FloatArray) -> BoolArray:
        """Whether a result of `inverse` is at its upper limit."""
        return np.asarray(values >= (1 - _FLAT) * np.maximum(self._ceiling(FAR), _FLAT))

    def _ceiling(self, far: float) -> FloatArray:
        return far * np.maximum(self.greatest, 0.0)


def _log1p(values: FloatArray) -> FloatArray:
    return np.log1p(np.maximum(values, 0.0))


def _moments(values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and deviation of each column, NaN left out; deviation 0 where a column is constant or empty."""
    known = ~np.isnan(values)
    count = np.maximum(known.sum(axis=0), 1)
    mean = np.where(known, values, 0.0).sum(axis=0) / count
    apart = np.where(known, values - mean, 0.0)
    deviation = np.sqrt((apart**2).sum(axis=0) / count)
    return mean, np.where(deviation > _FLAT * np.maximum(np.abs(mean), 1.0), deviation, 0.0)


def _plain(values: FloatArray) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _positive(deviation: tuple[float, ...]) -> None:
    if min(deviation, default=1.0) <= 0:
        raise BadInput("a scaler with a deviation that is not more than 0")


def _same_length(*parts: tuple[object, ...]) -> None:
    if len({len(part) for part in parts}) > 1:
        raise BadInput(f"a scaler whose parts have different lengths: {', '.join(str(len(part)) for part in parts)}")
