"""The one ordered table of what Driple measures and predicts: 4 resources x 3 burst-idle-burst metrics.

Datasets, inspectors and reports take names, units and order from here and from nowhere else.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Tuple


@dataclass(frozen=True)
class Resource:
    """Something of a host that a training job keeps busy in bursts."""

    key: str
    """Prefix of its columns."""
    title: str
    """How a person calls it."""
    amount_unit: str
    """Unit of its burst amount."""
    amount_suffix: str
    """The same unit as a column name says it."""


@dataclass(frozen=True)
class BibMetric:
    """One of the three numbers that describe a burst-idle-burst pattern."""

    key: str
    """`burst`, `idle` or `amount`."""
    title: str
    """How a person calls it."""


@dataclass(frozen=True)
class Target:
    """One of the 12 numbers: a metric of a resource."""

    resource: Resource
    metric: BibMetric

    @property
    def column(self) -> str:
        """Its column in datasets and predictions, with the unit in the name."""
        if self.metric is AMOUNT:
            return f"{self.resource.key}_burst_{self.resource.amount_suffix}"
        return f"{self.resource.key}_{self.metric.key}_s"

    @property
    def unit(self) -> str:
        """The unit of its value, for people."""
        return self.resource.amount_unit if self.metric is AMOUNT else "s"

    @property
    def title(self) -> str:
        """For tables and axes."""
        return f"{self.resource.title}, {self.metric.title}"


GPU = Resource("gpu", "GPU utilisation", "%", "pct")
GPU_MEMORY = Resource("gpu_mem", "GPU memory utilisation", "%", "pct")
NET_TX = Resource("net_tx", "network TX", "B/s", "bytes_per_s")
NET_RX = Resource("net_rx", "network RX", "B/s", "bytes_per_s")

BURST = BibMetric("burst", "mean burst duration")
IDLE = BibMetric("idle", "mean idle duration")
AMOUNT = BibMetric("amount", "mean burst amount")

RESOURCES: Tuple[Resource, ...] = (GPU, GPU_MEMORY, NET_TX, NET_RX)
METRICS: Tuple[BibMetric, ...] = (BURST, IDLE, AMOUNT)
TARGETS: Tuple[Target, ...] = tuple(Target(r, m) for r in RESOURCES for m in METRICS)
COLUMNS: Tuple[str, ...] = tuple(target.column for target in TARGETS)
TARGET_OF_COLUMN: Dict[str, Target] = {target.column: target for target in TARGETS}

# The published datasets and checkpoint order their 12 labels otherwise: memory before GPU, RX before TX, idle before
# burst. `labels[PUBLISHED_INDEX[i]]` is the value of `TARGETS[i]`.
_PUBLISHED = tuple(Target(r, m) for r in (GPU_MEMORY, GPU, NET_RX, NET_TX) for m in (IDLE, BURST, AMOUNT))
PUBLISHED_INDEX: Tuple[int, ...] = tuple(_PUBLISHED.index(target) for target in TARGETS)
