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


_FIRST_ROWS = 1 << 17


class PacketCollector:
    """Collects packets of one capture in one block of memory.

    Large blocks are taken from the system in huge pages: many small arrays cost more time than decoding headers.
    """

    def __init__(self, rows: int = _FIRST_ROWS) -> None:
        """`rows` is about how many packets will come."""
        self._block = _block(max(1, rows))
        self._count = 0
        self._numbers: dict[Flow, int] = {}

    def __len__(self) -> int:
        return self._count

    def add(self, part: Packets) -> None:
        """Copies packets behind those that are there."""
        start, end = self._count, self._count + len(part)
        if end > self._block.shape[1]:
            block = _block(max(end, 2 * self._block.shape[1]))
            block[:, :start] = self._block[:, :start]
            self._block = block
        numbers = [self._numbers.setdefault(flow, len(self._numbers)) for flow in part.flows]
        for row, name in zip(self._block, COLUMNS, strict=True):
            values = getattr(part, name)
            row[start:end] = np.array(numbers, np.int64)[values] if name == "flow" and numbers else values
        self._count = end

    def packets(self, notes: tuple[str, ...] = ()) -> Packets:
        """All of them, in the order of time."""
        columns: dict[str, Any] = dict(zip(COLUMNS, self._block[:, : self._count], strict=True))
        return join([Packets(**columns, flows=tuple(self._numbers), notes=notes)])


def join(parts: Sequence[Packets]) -> Packets:
    """Several captures as one, in the order of time."""
    times = [part.t_ns for part in parts]
    t_ns = times[0] if len(times) == 1 else np.concatenate([np.zeros(0, np.int64), *times])
    order = np.argsort(t_ns, kind="stable") if np.any(t_ns[1:] < t_ns[:-1]) else None
    if len(parts) == 1 and order is None:
        return parts[0]
    flows = tuple(dict.fromkeys(flow for part in parts for flow in part.flows))
    number = {flow: i for i, flow in enumerate(flows)}
    block = _block(len(t_ns))
    for row, name in zip(block, COLUMNS, strict=True):
        values = [getattr(part, name) for part in parts]
        if name == "flow":
            maps = [np.array([number[flow] for flow in part.flows], dtype=np.int64) for part in parts]
            values = [new[old] if len(new) else old for new, old in zip(maps, values, strict=True)]
        joined = np.concatenate(values) if values else row
        row[:] = joined if order is None else joined[order]
    columns: dict[str, Any] = dict(zip(COLUMNS, block, strict=True))
    notes = tuple(note for part in parts for note in part.notes)
    damaged = any(part.damaged for part in parts)
    return Packets(**columns, flows=flows, dropped=sum(part.dropped for part in parts), damaged=damaged, notes=notes)


def _block(rows: int) -> Any:
    return np.empty((len(COLUMNS), rows), np.int64)
