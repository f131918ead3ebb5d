"""The layout of the published traffic study: what the name of a folder says, whose a capture is, and the training log.

A folder is a run: framework-model-optimizer-batchsize-backend-loss(-topology). The loss is a number; the published
traces have `normal` and `loss_0.5` instead. In the folder are `worker-<i>-tcpdump.pcap`, with the packets that the
worker sent, and `train_history.log` of the first worker: a line for each step with the time of its end.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from driple.contracts.traffic_formulas import StepBytes, step_bytes
from driple.pipeline.traffic.packet_columns import Ints, Packets
from driple.pipeline.traffic.traffic_job import JobKind

HISTORY = "train_history.log"
_WEIGHTS_MB = {"mobilenetv2": 8.95, "densenet201": 72.45, "resnet50": 94.22, "resnet101": 170.29}
"""Weights of the study's models in its variant for CIFAR-10 (10 classes)."""
_LOSS = re.compile(r"(?:loss_)?(\d+(?:\.\d+)?)")
_NO_LOSS = "normal"
_STRATEGIES = {"kungfu_pairavg": "pair_averaging"}
"""By framework: the strategy, where the topology in the name does not tell who sends to whom."""
_WORKER = re.compile(r"worker-(\d+)")
_STEP = re.compile(rb"Batch,\d+,(\d{1,10}(?:\.\d+)?),[^,\s]+,([^,\s]+)")
"""Its time and its accuracy. Starters of jobs may write the name of the task before a line."""
_LATEST_S = 4e9
_MOST_BYTES = 64 << 20
"""Of a training log that is read."""


class History(NamedTuple):
    """Steps of the first worker."""

    end_ns: Ints
    """On the wall clock."""
    accuracy: Sequence[float]


def study_kind(folder: str, workers: int) -> JobKind:
    """The workload in the name of a folder of the study; nothing of another name."""
    parts = folder.split("-")
    if len(parts) < 6:
        return JobKind()
    framework, model, optimiser, batch, backend, loss, *topology = parts
    found = _LOSS.fullmatch(loss)
    if not (batch.isascii() and batch.isdigit() and (found or loss == _NO_LOSS)):
        return JobKind()
    weights_mb = _WEIGHTS_MB.get(model)
    return JobKind(
        framework=framework,
        backend=backend,
        model=model,
        optimiser=optimiser,
        batch_size=int(batch),
        topology=_STRATEGIES.get(framework, (topology[0] if topology else "ring").lower()),
        loss_pct=float(found[1]) if found else 0.0,
        workers=workers,
        gradient_bytes=None if weights_mb is None else weights_mb * 1e6,
    )


def addresses_of(captures: Mapping[Path, Packets]) -> dict[int, str]:
    """The address of each worker: the one that sent most packets in its capture. Empty if that is not clear."""
    found: dict[int, str] = {}
    for path, packets in captures.items():
        named = _WORKER.match(path.name)
        if named is None:
            return {}
        counts: dict[str, int] = {}
        for flow, count in zip(packets.flows, np.bincount(packets.flow, minlength=len(packets.flows)), strict=True):
            if flow.source.address:
                counts[flow.source.address] = counts.get(flow.source.address, 0) + int(count)
        if counts:
            found[int(named[1])] = max(counts, key=lambda address: counts[address])
    return found if len(set(found.values())) == len(found) else {}


def expected_bytes(kind: JobKind, addresses: Mapping[int, str]) -> dict[str, StepBytes] | None:
    """Payload of each address in a step by the formula; None without a formula or the address of a worker."""
    if kind.topology is None or kind.gradient_bytes is None or kind.workers is None:
        return None
    formula = step_bytes(kind.topology, kind.gradient_bytes, kind.workers)
    if not formula or sorted(addresses) != list(range(kind.workers)):
        return None
    return {address: formula[f"worker:{worker}"] for worker, address in addresses.items()}


def read_history(folder: Path) -> History | None:
    """The steps in the training log of a folder; None if there is no log, or no step in it."""
    try:
        with (folder / HISTORY).open("rb") as stream:
            content = stream.read(_MOST_BYTES)
    except OSError:
        return None
    found = _STEP.findall(content)
    rows = sorted((round(float(s) * 1e9), _number(accuracy)) for s, accuracy in found if float(s) < _LATEST_S)
    if not rows:
        return None
    return History(np.array([end for end, _ in rows], np.int64), [accuracy for _, accuracy in rows])


def _number(text: bytes) -> float:
    """A number in the log; NaN for what is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
