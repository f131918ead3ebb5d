"""Source: the interface of everything that can be sampled.

A source owns some columns of a trace. The sampler puts the columns of all sources side by side in one row, passes to
each where its own begin, and calls `read` on the ticks that the source requested. All values of a tick have the same
time stamp; samples that a device took at other times come through `extra`.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, MutableSequence, Optional, Protocol, Sequence, Tuple, Union

Value = Optional[Union[int, float]]  # a number, or None if the device does not report it. Never 0 in place of None

Late = Tuple[int, Sequence[Value]]
"""A sample with its own time: host's CLOCK_MONOTONIC in ns, then one value for each of the source's columns."""


class Source(Protocol):
    """A part of a host that can be read many times a second.

    Life cycle: created, `open`, then `read` and `extra` in turn, `close`; `quality` at any time after `open`.
    """

    name: str  # names it in quality, logs and messages: `nic`, `gpu0`, `task`, `host`. Unique in a trace
    columns: Sequence[str]
    """Names of columns of contracts.trace, through `nth` where a trace has several sources of the kind."""
    period_ticks: int  # it is read on every n-th tick; fixed after `open`

    def open(self) -> None:
        """Prepares it for reading; everything slow belongs here. Raises BadInput, which names the valid choices."""

    def read(self, t_mono_ns: int, row: MutableSequence[Value], at: int) -> None:
        """Fills `row[at]` to `row[at + len(columns) - 1]`. All of these are None before the call.

        Runs in the loop: quick, no allocation that stays, and no exception for a device that is lost, which means
        leaving the slots None, logging it once and counting it for `quality`.
        """

    def extra(self, last: bool = False) -> Sequence[Late]:
        """Samples with their own times that arrived since the last call, oldest first; usually an empty tuple.

        Called after a `read`, at least once a second, and once more before `close`, with `last`: nothing may be held
        back then. Each becomes a row of the trace with the other sources' columns null. Times never go back from one
        sample to the next.
        """
        return ()

    def quality(self) -> Dict[str, Any]:
        """Quality data that only the source has, as plain JSON values: method, resets, missing readings.

        Periods, refresh periods, gaps and nulls are counted outside, for all sources alike.
        """

    def close(self) -> None:
        """Releases everything. Safe to call twice, and after an `open` that failed."""


def nth(columns: Sequence[str], position: int) -> List[str]:
    """Column names of the `position`-th source of a kind in one trace.

    The first has the plain names (`gpu_util_pct`); those after it add their position (`gpu_util_pct_1`). No declared
    name ends in a digit, so `declared` can take the number off again.
    """
    return list(columns) if position == 0 else [f"{column}_{position}" for column in columns]


def declared(column: str) -> str:
    """The name under which contracts.trace declares a column that `nth` may have numbered."""
    name, _, number = column.rpartition("_")
    return name if name and number.isdigit() else column


def affordable_period(hz: float, wanted_hz: float, read: Callable[[], object], share: float) -> int:
    """As `period_in_ticks`, and more where reads at that rate would take more than `share` of the time.

    Uses the quickest of some reads, since any of them may be interrupted. At least one read per second.
    """
    costs = []
    for _ in range(5):
        before = time.perf_counter()
        read()
        costs.append(time.perf_counter() - before)
    return period_in_ticks(hz, min(wanted_hz, max(1.0, share / max(min(costs), 1e-9))))


def period_in_ticks(hz: float, wanted_hz: float) -> int:
    """Ticks of a loop at `hz` between two reads of a source that is to be read at `wanted_hz`; at least 1."""
    return max(1, round(hz / wanted_hz))
