"""Maps the clocks of hosts to one timeline, and finds the measured part of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from driple.contracts.manifest import ClockFit
from driple.pipeline.traces.series import FloatArray


@dataclass(frozen=True)
class Steps:
    """Training steps of one worker."""

    step: NDArray[np.int64]
    start_s: FloatArray
    """On the run's timeline."""
    end_s: FloatArray

    def from_step(self, first: int) -> Steps:
        return self._of(self.step >= first)

    def within(self, window: Window) -> Steps:
        """Those whose middle is in a window: synchronous workers start steps a few milliseconds apart."""
        middle = (self.start_s + self.end_s) / 2
        return self._of((middle >= window.start_s) & (middle <= window.end_s))

    @property
    def window(self) -> Window:
        """From the start of the first step to the end of the last."""
        return Window(float(self.start_s[0]), float(self.end_s[-1]))

    def _of(self, keep: NDArray[np.bool_]) -> Steps:
        return Steps(self.step[keep], self.start_s[keep], self.end_s[keep])


@dataclass(frozen=True)
class Window:
    """A part of the timeline."""

    start_s: float
    end_s: float

    @property
    def duration_s(self) -> float:
        return self.end_s - self.start_s


def to_controller_ns(clock: ClockFit, host_ns: Any) -> NDArray[np.int64]:
    """Times of a host's clock on the controller's clock: `ClockFit.to_controller` for arrays."""
    host_ns = np.asarray(host_ns, dtype=np.int64)
    span = clock.after.host_ns - clock.before.host_ns
    drift = (clock.after.offset_ns - clock.before.offset_ns) / span if span else 0.0
    return host_ns - clock.before.offset_ns - np.round(drift * (host_ns - clock.before.host_ns)).astype(np.int64)


def common_window(measured: list[Steps]) -> Window | None:
    """The time in which all workers train after warm-up; None if there is none."""
    if not measured or any(len(steps.step) == 0 for steps in measured):
        return None
    start = max(float(steps.start_s[0]) for steps in measured)
    end = min(float(steps.end_s[-1]) for steps in measured)
    return Window(start, end) if end > start else None
