"""Events: what was sent when, by which flow, and between which tasks. Packets and counters both become events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from driple.contracts.errors import BadInput
from driple.pipeline.traces.series import FloatArray
from driple.pipeline.traffic.packet_columns import Endpoint, Ints

PIECE_S = 10.0
"""Pieces of time of the load of flows, as in the published study."""
BINS_S = (0.001, 0.01, 0.1, 1.0)
"""Bins of throughput and of burstiness."""


MOST_BINS = 50_000_000
"""More bins are refused: they need gigabytes, and a time stamp that is wrong by years asks for more than there is."""

OTHERS = "others"
"""Where the bytes of an interface went, whose counters do not say it."""
OTHER = "other"
"""The end of a flow without an address, such as ARP."""


class TaskFlow(NamedTuple):
    """A flow between two tasks. A task that is not known has the name of its address."""

    source: Endpoint
    destination: Endpoint
    protocol: int
    source_task: str
    destination_task: str

    @property
    def pair(self) -> tuple[str, str]:
        return self.source_task, self.destination_task


class FlowFacts(NamedTuple):
    """Size and life of a flow."""

    flow: TaskFlow
    bytes: int
    events: int
    start_s: float
    end_s: float


@dataclass(frozen=True)
class Events:
    """Bytes that were sent, each with its time and flow, in the order of time."""

    t_s: FloatArray
    flow: Ints
    bytes: Ints
    flows: tuple[TaskFlow, ...]
    resolution_s: float
    """The finest bins for which the times are good enough."""

    def between(self, start_s: float, end_s: float) -> Events:
        """The events inside a window."""
        first = int(np.searchsorted(self.t_s, start_s))
        keep = slice(first, max(first, int(np.searchsorted(self.t_s, end_s))))
        return replace(self, t_s=self.t_s[keep], flow=self.flow[keep], bytes=self.bytes[keep])

    @cached_property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        return tuple(sorted({flow.pair for flow in self.flows}))

    @cached_property
    def _pair(self) -> Any:
        """The position of each event's pair in `pairs`."""
        number = {pair: i for i, pair in enumerate(self.pairs)}
        return np.array([number[flow.pair] for flow in self.flows], np.int64)[self.flow]

    @property
    def tasks(self) -> tuple[str, ...]:
        return tuple(sorted({task for pair in self.pairs for task in pair} - {OTHERS}))

    @property
    def total(self) -> int:
        return int(self.bytes.sum())

    @property
    def span(self) -> tuple[float, float]:
        """Times of the first and last event."""
        return (float(self.t_s[0]), float(self.t_s[-1])) if len(self.t_s) else (0.0, 0.0)

    def matrix(self) -> dict[tuple[str, str], int]:
        """Bytes by pair of tasks."""
        sums = _sums(self._pair, self.bytes, len(self.pairs))
        return {pair: int(value) for pair, value in zip(self.pairs, sums, strict=True)}

    def sent(self) -> dict[str, int]:
        """Bytes sent by each task."""
        return self._by_task(0)

    def received(self) -> dict[str, int]:
        """Bytes sent to each task."""
        return self._by_task(1)

    def _by_task(self, end: int) -> dict[str, int]:
        found = dict.fromkeys(self.tasks, 0)
        for pair, count in self.matrix().items():
            if pair[end] != OTHERS:
                found[pair[end]] += count
        return found

    def throughput(self, bin_s: float, start_s: float, end_s: float) -> FloatArray:
        """Bytes per second in each bin."""
        count, position = self._bins(bin_s, start_s, end_s)
        return _sums(position, self.bytes, _possible(count, bin_s)) / bin_s

    def pair_throughput(self, bin_s: float, start_s: float, end_s: float) -> dict[tuple[str, str], FloatArray]:
        """Bytes per second in each bin, by pair."""
        count, position = self._bins(bin_s, start_s, end_s)
        _possible(count * len(self.pairs), bin_s)
        place = np.where(position < 0, -1, self._pair * count + position)
        sums = _sums(place, self.bytes, count * len(self.pairs))
        return dict(zip(self.pairs, sums.reshape(len(self.pairs), count) / bin_s, strict=True))

    def filled_bins(self, bin_s: float, start_s: float, *, by_pair: bool) -> tuple[Any, Any, Any]:
        """Pair (0 for all together), bin and bytes of the bins since `start_s` in which something was sent.

        However long the record is: only bins with events take memory.
        """
        place = np.rint((self.t_s - start_s) * 1e9).astype(np.int64) // round(bin_s * 1e9)
        count = int(place.max(initial=0)) + 1
        used, position = np.unique(self._pair * count + place if by_pair else place, return_inverse=True)
        return used // count, used % count, _sums(position, self.bytes, len(used))

    def peak_to_mean(self, bin_s: float) -> float | None:
        """How bursty the total is: its greatest bin divided by its mean; None without events or resolution."""
        start_s, end_s = self.span
        if bin_s < self.resolution_s or end_s - start_s < bin_s:
            return None
        count, position = self._bins(bin_s, start_s, start_s + np.floor((end_s - start_s) / bin_s) * bin_s)
        # Of bins with events alone: in 1 ms most bins of a long job are empty.
        inside = position >= 0
        used, place = np.unique(position[inside], return_inverse=True)
        sums = _sums(place, self.bytes[inside], len(used))
        mean = float(sums.sum()) / count
        return float(sums.max()) / mean if mean else None

    def flow_facts(self) -> list[FlowFacts]:
        """Every flow that sent something, in the order of their beginnings."""
        count = len(self.flows)
        size, events = _sums(self.flow, self.bytes, count), np.bincount(self.flow, minlength=count)
        first, last = np.full(count, np.inf), np.full(count, -np.inf)
        np.minimum.at(first, self.flow, self.t_s)
        np.maximum.at(last, self.flow, self.t_s)
        rows = [
            FlowFacts(flow, int(size[i]), int(events[i]), float(first[i]), float(last[i]))
            for i, flow in enumerate(self.flows)
            if events[i]
        ]
        return sorted(rows, key=lambda row: (row.start_s, row.flow))

    def load(self, piece_s: float = PIECE_S) -> Any:
        """Bytes of each flow (rows, as in `flows`) in each piece of time since the first event."""
        start_s, end_s = self.span
        pieces = int((end_s - start_s) // piece_s) + 1
        _possible(pieces * len(self.flows), piece_s)
        piece = np.minimum((self.t_s - start_s) // piece_s, pieces - 1).astype(np.int64)
        return _sums(self.flow * pieces + piece, self.bytes, len(self.flows) * pieces).reshape(-1, pieces)

    def _bins(self, bin_s: float, start_s: float, end_s: float) -> tuple[int, Any]:
        """The number of bins, and the bin of each event; those outside the window have no bin (-1)."""
        count = max(1, round((end_s - start_s) / bin_s))
        # In nanoseconds: in seconds, 0.009 / 0.001 is below 9.
        position = np.rint((self.t_s - start_s) * 1e9).astype(np.int64) // round(bin_s * 1e9)
        return count, np.where((position >= 0) & (position < count), position, -1)


def flow_size_cdf(facts: Sequence[FlowFacts]) -> tuple[Any, Any]:
    """Flow sizes, and the share of flows that are at most so large."""
    sizes = np.sort(np.array([row.bytes for row in facts], np.int64))
    return sizes, np.arange(1, len(sizes) + 1) / max(1, len(sizes))


def _possible(count: int, bin_s: float) -> int:
    if count > MOST_BINS:
        raise BadInput(
            f"{count} bins of {bin_s:g} s are too many (at most {MOST_BINS}): the events are years apart, "
            "or the record is too long for such bins"
        )
    return count


def _sums(position: Any, values: Any, count: int) -> Any:
    """Sums by position, exact for integers; negative positions are left out."""
    if len(position) and position.min() < 0:
        keep = position >= 0
        position, values = position[keep], values[keep]
    return np.bincount(position, weights=values, minlength=count)[:count]
