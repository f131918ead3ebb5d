"""Times for which a GPU's buffer has no samples, and what the gauge's answers say of them.

An idle device may stop to fill its buffer. Silence alone is not idleness: only where the gauge saw the device at rest
is its time filled, and what nobody saw stays a gap in the trace.
"""

from __future__ import annotations

from collections import deque
from typing import Deque, List, Optional, Sequence, Tuple

GAUGE_NS = 170_000_000  # the gauge's window, 1/6 s; its answer is of the last whole one, so of up to two windows ago
FALLEN = 0.9  # below this share of what samples said before, the gauge has seen that it did not go on like that
REST = 5.0  # up to here (%) a silent device is idle, and silent because of that
SPOKEN = 2
"""A device that gave more samples at rest than this is not silent because of that. Edges of bursts may look like it."""
LONGEST_NS = 10_000_000_000  # no look of the gauge speaks for more than this


def gap_value(answer: float, heard: Sequence[float], age_ns: int) -> Optional[float]:
    """Lower bound of the utilisation (%) in a time without samples, by the gauge's answer; None if that may be older.

    Args:
        answer: of the gauge, in percent.
        heard: the samples around that time, into which the gauge's window may reach.
        age_ns: age of the last of them.
    """
    share = min(1.0, max(0.0, 2 - age_ns / GAUGE_NS))  # of the window, at most so much is of samples
    if share and sum(value <= REST for value in heard) > SPOKEN:
        return None
    if share and answer and answer >= FALLEN * sum(heard) / max(1, len(heard)):
        return None
    return max(0.0, (answer - share * max(heard, default=0.0)) / (1 - share)) if share < 1 else 0.0


def evenly(start_ns: int, end_ns: int, period_ns: int) -> List[int]:
    """Times from one to another, without the first, as close to a period apart as they fit."""
    start_ns = max(start_ns, end_ns - LONGEST_NS)
    count = round((end_ns - start_ns) / period_ns)
    return [start_ns + (end_ns - start_ns) * k // count for k in range(1, count + 1)]


class SampleGap:
    """The time since a buffer's last sample, and what the gauge said of it.

    An idle device stays silent while it is idle: where the gauge saw it at rest, all of that time is known, and filled
    at the device's period. Silence of a device that works has other reasons: there only the gauge's answers stand.
    """

    def __init__(self) -> None:
        self.looks: List[Tuple[int, float]] = []
        """When the gauge answered and what, oldest first, while samples of that time may still turn up."""
        self.settled_ns = 0  # up to here it was filled for good
        self._resting: Optional[float] = None
        self._heard: Deque[List[float]] = deque(maxlen=2)

    def hear(self, values: Sequence[Optional[float]]) -> None:
        """Takes note of what samples say, with which the gauge's answers are compared."""
        self._heard.append([value for value in values if value is not None])

    def look(self, now_ns: int, since_ns: int, answer: float) -> None:
        """Takes an answer of the gauge. `since_ns` is of the last sample."""
        value = gap_value(answer, [value for some in self._heard for value in some], now_ns - since_ns)
        if value is not None:
            self.looks.append((now_ns, value))

    def settle(self, start_ns: int, period_ns: int) -> List[Tuple[int, float]]:
        """Values that are known for the time from `start_ns` to the last look."""
        found: List[Tuple[int, float]] = []
        for at_ns, value in self.looks:
            start_ns = max(start_ns, self.settled_ns)
            self._resting = value if value <= REST and period_ns else None
            times = evenly(start_ns, at_ns, period_ns) if self._resting is not None else [at_ns]
            found += [(t, value) for t in times]
            self.settled_ns = max(self.settled_ns, at_ns)
        self.looks = []
        return found

    def close(self, start_ns: int, period_ns: int, first_ns: int, silent: bool) -> List[Tuple[int, float]]:
        """As `settle`, and if it was silent until then, up to the period of which the first new sample speaks."""
        end_ns = first_ns - max(period_ns, 1)
        # A look at a time of which samples speak is withdrawn; that the device was at rest before, it saw all the same.
        self.looks = [
            (min(at, end_ns), value) for at, value in self.looks if at <= end_ns or (period_ns and value <= REST)
        ]
        found = self.settle(start_ns, period_ns)
        if silent and self._resting is not None:
            found += [(t, self._resting) for t in evenly(max(start_ns, self.settled_ns), end_ns, period_ns)]
        self._resting = None
        return found
