"""TCP: what was sent again, and what the network lost."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from driple.pipeline.traffic.packet_columns import Flow, Ints, Packets


class Retransmissions(NamedTuple):
    """Data that senders sent again."""

    segments: int
    """Segments with data that had been sent before."""
    data_segments: int
    """All segments with data."""
    bytes: int
    t_ns: Ints
    """When."""

    @property
    def share(self) -> float | None:
        return self.segments / self.data_segments if self.data_segments else None


def retransmissions(packets: Packets) -> Retransmissions:
    """Segments of the packets of senders that begin before the end of the data sent so far.

    A segment that is partly new counts with the bytes that are not.
    """
    data = packets.where((packets.payload_bytes > 0) & np.array(packets.is_tcp or (False,))[_safe(packets)])
    order = np.argsort(data.flow, kind="stable")
    flow, payload = data.flow[order], data.payload_bytes[order]
    begin = _unwrapped(data.seq[order], flow)
    reached = _before(begin + payload, flow, begin)
    again = np.clip(reached - begin, 0, payload)
    which = again > 0
    segments = np.ceil(data.segments[order] * again / np.maximum(1, payload)).astype(np.int64)
    return Retransmissions(
        int(segments[which].sum()), int(data.segments.sum()), int(again.sum()), np.sort(data.t_ns[order][which])
    )


def _safe(packets: Packets) -> Any:
    return packets.flow if len(packets.flows) else np.zeros(0, np.int64)


def _unwrapped(seq: Any, flow: Any) -> Any:
    """Sequence numbers that go on beyond 2^32. They differ from one segment to the next by less than half of that."""
    if not len(seq):
        return seq
    change = np.diff(seq, prepend=seq[0])
    change = (change + 2**31) % 2**32 - 2**31
    change[np.r_[True, flow[1:] != flow[:-1]]] = 0
    return np.cumsum(change)  # each flow goes on where the one before ended: only differences inside one count


def _before(end: Any, flow: Any, begin: Any) -> Any:
    """The highest end of data of the flow before each segment; its own beginning for the first one."""
    found = begin.copy()
    if not len(flow):
        return found
    starts = np.flatnonzero(np.r_[True, flow[1:] != flow[:-1]]).tolist()
    for start, stop in zip(starts, [*starts[1:], len(flow)], strict=True):
        found[start + 1 : stop] = np.maximum.accumulate(end[start:stop])[:-1]
    return found


class Loss(NamedTuple):
    """Segments with data at the sender and at the receiver of the same flows."""

    sent: int
    received: int

    @property
    def share(self) -> float | None:
        """Part of the segments that did not arrive."""
        return 1 - self.received / self.sent if self.sent else None


def true_loss(packets: Packets) -> Loss | None:
    """Compares both ends of the flows that were captured at both.

    None if there are none, a capture is damaged, or more arrived than was sent: the captures then do not cover the
    same time.
    """
    if packets.damaged:
        return None
    ends: dict[Flow, dict[bool, int]] = {}
    counted = np.bincount(packets.flow, weights=packets.segments * (packets.payload_bytes > 0), minlength=1)
    for number, flow in enumerate(packets.flows):
        if flow.sent is not None and packets.is_tcp[number]:
            ends.setdefault(flow._replace(sent=None), {})[flow.sent] = int(counted[number])
    both = [found for found in ends.values() if len(found) == 2]
    loss = Loss(sum(found[True] for found in both), sum(found[False] for found in both))
    return loss if both and loss.received <= loss.sent else None
