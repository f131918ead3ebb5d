"""The traffic of pcap files: one file, a folder with a file for each worker, or the layout of the published study.

The study names its folders framework-model-optimizer-batchsize-backend-loss(-topology), with one capture for each
worker in each folder.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from driple.contracts.errors import BadInput
from driple.pipeline.readers.pcap import is_capture, read_pcap
from driple.pipeline.traffic.job import PACKETS, JobKind, TrafficJob
from driple.pipeline.traffic.packets import Packets, join
from driple.pipeline.traffic.run_job import packet_events

_SUFFIXES = (".pcap", ".pcapng", ".cap")
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
    """One job from its captures. Raises BadInput."""
    parts = [_with_directions(read_pcap(file)) if len(files) > 1 else read_pcap(file) for file in files]
    packets = join(parts)
    origin_ns = int(packets.t_ns[0])
    return TrafficJob(
        name=name,
        path=path,
        source=PACKETS,
        kind=study_kind(path.name, len(files)) if path.is_dir() else JobKind(),
        events=packet_events(packets, lambda end: end.address or "other", origin_ns),
        packets=packets,
        notes=packets.notes,
    )


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


def _with_directions(packets: Packets) -> Packets:
    """Several captures may have the same packet: the own address of a capture, which all its packets have, tells which
    it sent. A capture of only what a host sent has no other packets."""
    if any(flow.sent is not None for flow in packets.flows):
        return packets
    counts = np.bincount(packets.flow, minlength=len(packets.flows))
    seen: Counter[str] = Counter()
    for flow, count in zip(packets.flows, counts.tolist(), strict=True):
        for address in {flow.source.address, flow.destination.address} - {""}:
            seen[address] += count
    sources = {flow.source.address for flow in packets.flows if flow.source.address}
    own = next(iter(sources)) if len(sources) == 1 else (seen.most_common(1)[0][0] if seen else "")
    flows = tuple(
        flow._replace(sent=flow.source.address == own) if flow.source.address else flow for flow in packets.flows
    )
    return Packets(**{**{n: getattr(packets, n) for n in Packets.__dataclass_fields__}, "flows": flows})


def _start(path: Path) -> bytes:
    try:
        with path.open("rb") as stream:
            return stream.read(4)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
