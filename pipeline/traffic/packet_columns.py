"""Packets: the headers of many frames as columns, from any kind of capture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from driple.contracts.formats.packets import TCP

Ints: TypeAlias = NDArray[np.int64]


class Endpoint(NamedTuple):
    """One end of a flow."""

    address: str
    port: int


class Flow(NamedTuple):
    """All packets of a protocol from one endpoint to another."""

    source: Endpoint
    destination: Endpoint
    protocol: int
    sent: bool | None = None
    """Whether the host of the capture sent it; None if the capture does not say."""


@dataclass(frozen=True)
class Packets:
    """Frames in the order of a capture. A frame can stand for several packets on the wire (segmentation offload)."""

    t_ns: Ints
    flow: Ints
    """Position in `flows`."""
    frame_bytes: Ints
    payload_bytes: Ints
    segments: Ints
    seq: Ints
    ack: Ints
    flags: Ints
    flows: tuple[Flow, ...]
    dropped: int = 0
    """Frames that the capture missed."""
    damaged: bool = False
    """Whether a part of the capture is missing, beyond single frames."""
    notes: tuple[str, ...] = ()
    """What is missing, for people."""

    def __len__(self) -> int:
        return len(self.t_ns)

    @cached_property
    def wire_bytes(self) -> Ints:
        """Bytes on the wire: each segment of a frame has the headers of the frame."""
        return self.frame_bytes + (self.segments - 1) * (self.frame_bytes - self.payload_bytes)

    def where(self, keep: Any) -> Packets:
        """Some of the frames."""
        return replace(self, **{name: getattr(self, name)[keep] for name in COLUMNS})

    def of_flows(self, keep: Sequence[bool]) -> Packets:
        """The frames of some flows."""
        return self.where(np.asarray(keep, dtype=bool)[self.flow]) if len(self.flows) else self

    def only_flows(self, keep: Sequence[bool]) -> Packets:
        """As `of_flows`, and the others are not in `flows` either."""
        found = self.of_flows(keep)
        number = np.cumsum(keep, dtype=np.int64) - 1
        flows = tuple(flow for flow, kept in zip(self.flows, keep, strict=True) if kept)
        return replace(found, flow=number[found.flow], flows=flows) if len(self.flows) else self

    @cached_property
    def is_tcp(self) -> tuple[bool, ...]:
        return tuple(flow.protocol == TCP for flow in self.flows)


COLUMNS = ("t_ns", "flow", "frame_bytes", "payload_bytes", "segments", "seq", "ack", "flags")


def join(parts: Sequence[Packets]) -> Packets:
    """Several captures as one, in the order of time."""
    if len(parts) == 1 and not np.any(np.diff(parts[0].t_ns) < 0):
        return parts[0]
    flows = tuple(dict.fromkeys(flow for part in parts for flow in part.flows))
    number = {flow: i for i, flow in enumerate(flows)}
    columns: dict[str, Any] = {}
    for name in COLUMNS:
        values = [getattr(part, name) for part in parts]
        if name == "flow":
            maps = [np.array([number[flow] for flow in part.flows], dtype=np.int64) for part in parts]
            values = [new[old] if len(new) else old for new, old in zip(maps, values, strict=True)]
        columns[name] = np.concatenate(values) if values else np.zeros(0, np.int64)
    if np.any(np.diff(columns["t_ns"]) < 0):
        order = np.argsort(columns["t_ns"], kind="stable")
        columns = {name: column[order] for name, column in columns.items()}
    notes = tuple(note for part in parts for note in part.notes)
    damaged = any(part.damaged for part in parts)
    return Packets(**columns, flows=flows, dropped=sum(part.dropped for part in parts), damaged=damaged, notes=notes)
