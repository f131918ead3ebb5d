"""The table of what Driple measures and predicts. Datasets, inspectors and reports take names, units and order from it.

A target is either a metric of a resource (burst duration, idle duration or burst level of GPU utilisation, network TX,
...) or a quantity of its own, such as the step time. To add a resource, add a line to RESOURCES; to add another
target, add a line to OTHER_TARGETS and one to OTHER_VALUES of pipeline/bursts/task_metrics.py. The 12 published targets
keep their order in PUBLISHED_COLUMNS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Optional, Tuple

DURATION = "duration"
LEVEL = "level"

BUSY = "busy"
"""Kind of a resource: a share of time in percent, of a GPU or of processors."""
NETWORK = "network"
"""Kind of a resource: traffic. It is heavy-tailed, near zero when idle, and pauses inside a burst."""


@dataclass(frozen=True)
class Resource:
    """A part of a host that a training job uses in bursts."""

    key: str
    """Prefix of its columns."""
    title: str
    """Name for tables and axes."""
    amount_unit: str
    """Unit of its burst level."""
    amount_suffix: str
    """The same unit in a column name."""
    gpu_column: str
    """The trace column that shows it on a GPU."""
    cpu_column: str
    """The trace column that shows it on a host without a GPU."""
    kind: str = BUSY
    """`busy` or `network`: the rules that find its bursts."""
    flow_column: Optional[str] = None
    """The series that replaces the column if tasks share an interface: the sum over the task's TCP flows."""


@dataclass(frozen=True)
class BibMetric:
    """One of the three numbers that describe a burst-idle-burst pattern."""

    key: str
    """`burst`, `idle` or `amount`."""
    title: str
    """Name for tables and axes."""


@dataclass(frozen=True)
class Target:
    """One number that a dataset row holds and an inspector predicts."""

    column: str
    """Its column in datasets and predictions, with the unit in the name."""
    unit: str
    """The unit of its value, for people."""
    title: str
    """Name for tables and axes."""
    kind: str
    """`duration` (seconds, grows with the work of a step) or `level`."""
    resource: Optional[Resource] = None
    """None for a target that belongs to no resource."""
    metric: Optional[BibMetric] = None
    """None for a target that is not a burst metric."""


BURST = BibMetric("burst", "mean burst duration")
IDLE = BibMetric("idle", "mean idle duration")
AMOUNT = BibMetric("amount", "mean burst amount")
METRICS: Tuple[BibMetric, ...] = (BURST, IDLE, AMOUNT)


def burst_target(resource: Resource, metric: BibMetric) -> Target:
    """The target of a metric of a resource."""
    title = f"{resource.title}, {metric.title}"
    if metric is AMOUNT:
        column = f"{resource.key}_burst_{resource.amount_suffix}"
        return Target(column, resource.amount_unit, title, LEVEL, resource, metric)
    return Target(f"{resource.key}_{metric.key}_s", "s", title, DURATION, resource, metric)


# Without a GPU, CPU time stands in for GPU utilisation. Resident memory is nearly constant and shows no bursts, so
# memory utilisation comes from hardware counters or is null.
GPU = Resource("gpu", "GPU utilisation", "%", "pct", "gpu_util_pct", "task_cpu_ns")
GPU_MEMORY = Resource("gpu_mem", "GPU memory utilisation", "%", "pct", "gpu_mem_util_pct", "task_mem_traffic_bytes")
NET_TX = Resource(
    "net_tx", "network TX", "B/s", "bytes_per_s", "nic_tx_bytes", "nic_tx_bytes", NETWORK, "flows_tx_bytes"
)
NET_RX = Resource(
    "net_rx", "network RX", "B/s", "bytes_per_s", "nic_rx_bytes", "nic_rx_bytes", NETWORK, "flows_rx_bytes"
)

RESOURCES: Tuple[Resource, ...] = (GPU, GPU_MEMORY, NET_TX, NET_RX)
OTHER_TARGETS: Tuple[Target, ...] = ()
"""Targets that are not a metric of a resource. OTHER_VALUES of pipeline/bursts/task_metrics.py computes them."""

TARGETS: Tuple[Target, ...] = tuple(burst_target(r, m) for r in RESOURCES for m in METRICS) + OTHER_TARGETS
COLUMNS: Tuple[str, ...] = tuple(target.column for target in TARGETS)
TARGET_OF_COLUMN: Dict[str, Target] = {target.column: target for target in TARGETS}

PUBLISHED_COLUMNS: Tuple[str, ...] = tuple(
    burst_target(r, m).column for r in (GPU_MEMORY, GPU, NET_RX, NET_TX) for m in (IDLE, BURST, AMOUNT)
)
"""The 12 labels of the published datasets and checkpoint, in their order, by our column."""
PUBLISHED_INDEX: Tuple[int, ...] = tuple(PUBLISHED_COLUMNS.index(name) for name in COLUMNS if name in PUBLISHED_COLUMNS)
"""Where the published order has each of the 12, in the order of TARGETS: `labels[PUBLISHED_INDEX[i]]`."""
