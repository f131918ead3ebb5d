"""The task's own CPU time and resident memory: its whole process tree."""

from __future__ import annotations

import os
import time
from typing import Any, Dict, List, MutableSequence, Optional, Sequence

from driple.agents.sources.base import Late, Source, Value, period_in_ticks
from driple.agents.sources.process_tree import ProcessTree

_LOOK_HZ = 10.0
# A tree of hundreds costs milliseconds to go through. One of more than this many is gone through less often.
_LARGE = 16


class TaskSource:
    """CPU time, at every tick."""

    name = "task"
    columns: Sequence[str] = ("task_cpu_ns",)
    period_ticks = 1

    def __init__(self, tree: ProcessTree) -> None:
        self._tree = tree
        self._processors = os.cpu_count() or 1
        self._last_ns = 0
        self._last_t = 0
        self._last_unseen_ns = 0
        self._over_all_processors = 0

    def open(self) -> None:
        self._tree.open()

    def read(self, t_mono_ns: int, row: MutableSequence[Value], at: int) -> None:
        row[at] = used = self._tree.cpu_ns()
        if used - self._last_ns > (t_mono_ns - self._last_t) * self._processors and self._last_t:
            # CPU clocks step by the kernel's tick: two reads close together can show more than there is. The counter
            # is kept as it is; this counts how often a rate made of it would be absurd.
            self._over_all_processors += 1
        self._last_ns, self._last_t, self._last_unseen_ns = used, t_mono_ns, self._tree.unseen_ns

    def extra(self, last: bool = False) -> Sequence[Late]:
        """At the stop, one sample if a last look finds time of children that no read has shown."""
        if not (last and self._last_t):
            return ()
        self._tree.settle()
        if self._tree.unseen_ns == self._last_unseen_ns:
            return ()
        row: List[Value] = [None]
        now = time.monotonic_ns()
        self.read(now, row, 0)
        return ((now, row),)

    def quality(self) -> Dict[str, Any]:
        return {
            "root_pid": self._tree.root,
            "processes": self._tree.size,
            "steps_over_all_processors": self._over_all_processors,
            "pids_not_looked_at": self._tree.lost_track,
            "unseen_children_s": round(self._tree.unseen_ns / 1e9, 3),
            "lower_bound": self._tree.lower_bound,
        }

    def close(self) -> None:
        self._tree.close()


class TaskMemorySource(Source):
    """Resident memory, the search for new children and the watch for the end: ten times a second, as they cost more."""

    name = "task_memory"
    columns: Sequence[str] = ("task_rss_bytes",)

    def __init__(self, tree: ProcessTree, hz: float) -> None:
        """`tree` is opened before this source is."""
        self.period_ticks = period_in_ticks(hz, _LOOK_HZ)
        self._tree = tree
        self._ended = False
        self._left_out = 0

    def open(self) -> None:
        pass

    def read(self, t_mono_ns: int, row: MutableSequence[Value], at: int) -> None:
        tree = self._tree
        self._ended = tree.ended()
        self._left_out += 1
        if self._left_out > tree.size // _LARGE:
            self._left_out = 0
            tree.look()
            row[at] = tree.rss_bytes()

    def ended(self) -> Optional[str]:
        return "watched process ended" if self._ended else None

    def quality(self) -> Dict[str, Any]:
        return {}

    def close(self) -> None:
        pass
