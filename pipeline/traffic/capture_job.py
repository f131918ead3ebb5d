"""The traffic of pcap files: one file, a folder with a file for each worker, or the layout of the published study.

The study names its folders framework-model-optimizer-batchsize-backend-loss(-topology), with one capture for each
worker in each folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from driple.contracts.errors import BadInput
from driple.pipeline.readers.pcap import is_capture, read_pcap
from driple.pipeline.traffic.packet_columns import Flow, Packets, join
from driple.pipeline.traffic.packet_events import packet_events
from driple.pipeline.traffic.traffic_events import BINS_S, MOST_BINS
from driple.pipeline.traffic.traffic_job import PACKETS, JobKind, TrafficJob

_SUFFIXES = (".pcap", ".pcapng", ".cap")
_YEAR_S = 365.25 * 86400
_WEIGHTS_MB = {"mobilenetv2": 8.95, "densenet201": 72.45, "resnet50": 94.22, "resnet101": 170.29}
"""Weights of the study's models in its variant for CIFAR-10 (10 classes)."""


def captures_of(path: Path) -> list[Path]:
    """The captures that make up a job: the file itself, or those directly in a folder."""
    if path.is_file():
        return [path] if is_capture(_start(path)) else []
    return sorted(
        each for each in path.iterdir() if each.suffix in _SUFFIXES and each.is_file() and not each.name.startswith(".")
    )


def capture_job(name: str, path: Path, files: Sequence[Path]) -> TrafficJob:
    """One job from its captures; those that cannot be used are set aside. Raises BadInput if none can."""
    parts: list[Packets] = []
    aside: list[tuple[Path, str]] = []
    for file in files:
        try:
            parts.append(_checked(file, read_pcap(file)))
        except BadInput as error:
            if len(files) == 1:
                raise
            aside.append((file, str(error).removeprefix(f"{file}: ")))
    if not parts:
        raise BadInput(f"{aside[0][0]}: {aside[0][1]} (and {len(aside) - 1} more cannot be used)")
    packets = _checked(path, join(_with_directions(parts)))
    origin_ns = int(packets.t_ns[0])
    return TrafficJob(
        name=name,
        path=path,
        source=PACKETS,
        kind=study_kind(path.name, len(files)) if path.is_dir() else JobKind(),
        events=packet_events(packets, lambda end: end.address or "other", origin_ns),
        packets=packets,
        notes=packets.notes,
        set_aside=tuple(aside),
    )


def _checked(path: Path, packets: Packets) -> Packets:
    """The same packets, if a job can have such times."""
    span_s = (int(packets.t_ns.max()) - int(packets.t_ns.min())) / 1e9
    if span_s > MOST_BINS * BINS_S[-1]:
        raise BadInput(f"{path}: its packets are up to {span_s / _YEAR_S:.0f} years apart: wrong times")
    return packets


def study_kind(folder: str, workers: int) -> JobKind:
    """The workload in the name of a folder of the study; nothing of another name."""
    parts = folder.split("-")
    if len(parts) < 6:
        return JobKind()
    framework, model, optimiser, batch, backend, loss, *topology = parts
    try:
        batch_size, loss_pct = int(batch), float(loss)
    except ValueError:
        return JobKind()
    weights_mb = _WEIGHTS_MB.get(model)
    return JobKind(
        framework=framework,
        backend=backend,
        model=model,
        optimiser=optimiser,
        batch_size=batch_size,
        topology=(topology[0] if topology else "ring").lower(),
        loss_pct=loss_pct,
        workers=workers,
        gradient_bytes=None if weights_mb is None else weights_mb * 1e6,
    )


def _with_directions(parts: Sequence[Packets]) -> list[Packets]:
    """Captures in which each flow is known as sent or received, if several of them have it.

    The network only loses packets, so the sender of a flow is where most of its packets were captured.
    """
    most: dict[Flow, tuple[int, int]] = {}
    seen: Counter[Flow] = Counter()
    for number, part in enumerate(parts):
        counts = np.bincount(part.flow, minlength=len(part.flows)).tolist()
        for flow, count in zip(part.flows, counts, strict=True):
            seen[flow] += 1
            most[flow] = max(most.get(flow, (0, 0)), (count, -number))
    return [
        replace(
            part,
            flows=tuple(
                flow._replace(sent=most[flow][1] == -number) if flow.sent is None and seen[flow] > 1 else flow
                for flow in part.flows
            ),
        )
        for number, part in enumerate(parts)
    ]


def _start(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(4)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
