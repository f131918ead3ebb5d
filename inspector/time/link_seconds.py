"""Seconds that the busiest link of a job needs for the tensors of a training step.

    seconds = bytes of the busiest link, in its busier direction or both / payload rate of the link

With parameter servers, the server that holds the largest share serves all workers, so its link has workers times the
bytes of one; what it sends (variables) and what it receives (gradients) are two phases of a step, so both count. In an
all-reduce both directions are busy at once, so the busier one counts. Tasks on one machine need no link.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from driple.contracts.setting import Setting
from driple.contracts.strategy import RING, STRATEGIES
from driple.contracts.traffic_formulas import WIRE_FACTOR, all_reduce_traffic, pair_traffic, received, sent
from driple.inspector.data.array_types import FloatArray
from driple.inspector.data.examples import Example

MBIT = 1e6 / 8


def link_seconds(examples: Sequence[Example], settings: Sequence[Setting]) -> FloatArray:
    """[n]; NaN where the graph does not tell the bytes."""
    return np.array([_seconds(one, setting) for one, setting in zip(examples, settings, strict=True)])


def link_rate(example: Example, setting: Setting) -> float | None:
    """Payload bytes per second of a link in one direction: of the setting, or of the condition if that is less."""
    if setting.link_mbit is None:
        return None
    limit = example.workload.get("network_rate_mbit")
    mbit = setting.link_mbit if limit is None else min(setting.link_mbit, limit)
    return float(mbit) * MBIT / WIRE_FACTOR


def _seconds(example: Example, setting: Setting) -> float:
    rate = link_rate(example, setting)
    if rate is None or len(setting.tasks) == 1:
        return 0.0
    taken, given = example.received_bytes, example.sent_bytes
    if taken is None or given is None:
        return math.nan
    if setting.servers:
        busiest = taken if example.busiest_bytes is None else example.busiest_bytes
        share = busiest / taken if taken else 1.0
        down = max(taken, busiest * setting.workers)
        up = max(given, given * share * setting.workers)
        return float(down + up) / rate
    if not STRATEGIES[example.workload.get("strategy") or "allreduce"].has_topology:
        pairs = pair_traffic(setting.workers, given)
    else:
        pairs = all_reduce_traffic(example.workload.get("topology") or RING, range(setting.workers), given)
    tasks = [f"worker:{number}" for number in range(setting.workers)]
    return max(max(sent(pairs, task), received(pairs, task)) for task in tasks) / rate
