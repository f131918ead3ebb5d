"""TimeTable: what is known of workloads on sites before they run, as arrays: the input of the laws."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from driple.contracts.setting import Setting
from driple.inspector.data.array_types import BoolArray, FloatArray
from driple.inspector.data.examples import Example
from driple.inspector.time.link_seconds import link_seconds
from driple.inspector.time.work_amounts import AMOUNTS, FLOPS, work_amounts

_ARITHMETIC = np.array([unit == FLOPS for unit, _ in AMOUNTS.values()])
"""Whether an amount is of arithmetic."""
Site = tuple[str, str, str]
"""A setting, a machine and a framework: what has numbers of its own."""


@dataclass(frozen=True, eq=False)
class TimeTable:
    """Workloads on sites; every array has one row for each."""

    work: FloatArray
    """[n, AMOUNTS]: FLOPs are divided by the speed of arithmetic of the machine."""
    link: FloatArray
    """[n] seconds of the busiest link."""
    is_async: BoolArray
    batch: FloatArray
    moved: FloatArray
    """[n] bytes that a worker receives in a step."""
    workers: FloatArray
    servers: FloatArray

    def __len__(self) -> int:
        return len(self.link)

    @classmethod
    def of(
        cls, examples: Sequence[Example], settings: Sequence[Setting], arithmetic: FloatArray | None = None
    ) -> TimeTable:
        """Unknown bytes between tasks count as none, unknown batch sizes as 1.

        Args:
            examples: workloads.
            settings: where each runs.
            arithmetic: [n] how much faster arithmetic is on each machine; default 1.
        """
        work = work_amounts(examples)
        if arithmetic is not None:
            work = np.where(_ARITHMETIC, work / arithmetic[:, None], work)
        return cls(
            work=work,
            link=np.nan_to_num(link_seconds(examples, settings), nan=0.0),
            is_async=np.array([one.workload.get("update") == "async" for one in examples], dtype=bool),
            batch=np.array([one.workload.get("batch_size") or 1 for one in examples], dtype=np.float64),
            moved=np.array([one.received_bytes or 0.0 for one in examples], dtype=np.float64),
            workers=np.array([one.workers for one in settings], dtype=np.float64),
            servers=np.array([one.servers for one in settings], dtype=np.float64),
        )

    def take(self, places: BoolArray | Sequence[int]) -> TimeTable:
        """Some of the rows."""
        return TimeTable(*(getattr(self, name)[places] for name in self.__dataclass_fields__))

    def amount(self, name: str) -> FloatArray:
        """[n]: one of AMOUNTS."""
        found: FloatArray = self.work[:, list(AMOUNTS).index(name)]
        return found
