"""The traffic of pcap files: one file, a folder with a file for each worker, or the layout of the published study."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from driple.contracts.errors import BadInput
from driple.pipeline.readers.pcap import is_capture, read_pcap
from driple.pipeline.traffic.packet_columns import Endpoint, Flow, Packets, join
from driple.pipeline.traffic.packet_events import packet_events
from driple.pipeline.traffic.study_layout import HISTORY, addresses_of, expected_bytes, read_history, study_kind
from driple.pipeline.traffic.traffic_events import BINS_S, MOST_BINS, OTHER
from driple.pipeline.traffic.traffic_job import PACKETS, JobKind, TrafficJob

_SUFFIXES = (".pcap", ".pcapng", ".cap")
_YEAR_S = 365.25 * 86400
FIRST_WORKER = "worker:0"
"""Where its address is not known."""


def captures_of(path: Path) -> list[Path]:
    """The captures that make up a job: the file itself, or those directly in a folder."""
    if path.is_file():
        return [path] if is_capture(_start(path)) else []
    return sorted(
        each for each in path.iterdir() if each.suffix in _SUFFIXES and each.is_file() and not each.name.startswith(".")
    )


def capture_job(name: str, path: Path, files: Sequence[Path]) -> TrafficJob:
    """One job from its captures; those that cannot be used are set aside. Raises BadInput if none can."""
    found: dict[Path, Packets] = {}
    aside: list[tuple[Path, str]] = []
    for file in files:
        try:
            found[file] = _checked(file, read_pcap(file))
        except BadInput as error:
            if len(files) == 1:
                raise
            aside.append((file, str(error).removeprefix(f"{file}: ")))
    if not found:
        raise BadInput(f"{aside[0][0]}: {aside[0][1]} (and {len(aside) - 1} more cannot be used)")
    packets = _checked(path, join(_with_directions(list(found.values()))))
    origin_ns, last_ns = int(packets.t_ns[0]), int(packets.t_ns[-1])
    kind = study_kind(name, len(files)) if path.is_dir() else JobKind()
    addresses = addresses_of(found) if kind.framework else {}
    trained = _trained(path, addresses, origin_ns, last_ns) if kind.framework else {}
    notes = (*packets.notes, *trained.pop("notes", ()))

    def name_of(end: Endpoint) -> str:
        return end.address or OTHER

    return TrafficJob(
        name=name,
        path=path,
        source=PACKETS,
        kind=kind,
        events=packet_events(packets, name_of, origin_ns),
        packets=packets,
        payload=packet_events(packets, name_of, origin_ns, payload=True) if "steps" in trained else None,
        expected=expected_bytes(kind, addresses),
        notes=notes,
        set_aside=tuple(aside),
        **trained,
    )


def _checked(path: Path, packets: Packets) -> Packets:
    """The same packets, if a job can have such times."""
    span_s = (int(packets.t_ns.max()) - int(packets.t_ns.min())) / 1e9
    if span_s > MOST_BINS * BINS_S[-1]:
        raise BadInput(f"{path}: its packets are up to {span_s / _YEAR_S:.0f} years apart: wrong times")
    return packets


def _trained(folder: Path, addresses: Mapping[int, str], origin_ns: int, last_ns: int) -> dict[str, Any]:
    """What the training log of the study says of a job: steps, measured part, accuracy. Empty without steps in it."""
    history = read_history(folder)
    if history is None:
        return {}
    inside = (history.end_ns >= origin_ns) & (history.end_ns <= last_ns)
    if inside.sum() < 2:
        return {"notes": (f"{HISTORY}: fewer than two of its steps are at the time of the captures",)}
    from driple.pipeline.traces.align import Steps  # most captures have no log

    end_s = (history.end_ns[inside] - origin_ns) / 1e9
    steps = Steps(np.arange(1, len(end_s)), end_s[:-1], end_s[1:])
    accuracy = np.array(history.accuracy)[inside]
    known = np.isfinite(accuracy)
    return {
        "steps": {addresses.get(0, FIRST_WORKER): steps},
        "window": steps.window,
        "learned": list(zip(end_s[known].tolist(), accuracy[known].tolist(), strict=True)),
        "learned_what": "accuracy",
    }


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
