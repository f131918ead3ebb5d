from __future__ import annotations

import numpy as np
import pytest

from driple.contracts.manifest import ClockFit, ClockProbe
from driple.pipeline.traces.align import Steps, Window, common_window, to_controller_ns


def steps(start: float, count: int, length: float = 1.0) -> Steps:
    begin = start + np.arange(count) * length
    return Steps(np.arange(count), begin, begin + length)


def test_clocks_map_as_the_manifest_says_also_for_arrays_and_outside_the_probes() -> None:
    clock = ClockFit(ClockProbe(10**12, 5_000_000_000, 50_000), ClockProbe(10**12 + 60 * 10**9, 5_003_000_000, 50_000))
    host = np.array([10**12 - 10**9, 10**12, 10**12 + 30 * 10**9, 10**12 + 90 * 10**9])
    assert to_controller_ns(clock, host).tolist() == [clock.to_controller(int(each)) for each in host]


def test_equal_probes_mean_no_drift() -> None:
    probe = ClockProbe(10**12, 7, 1)
    assert to_controller_ns(ClockFit(probe, probe), [10**12 + 100]).tolist() == [10**12 + 93]


def test_the_common_window_is_while_all_train() -> None:
    assert common_window([steps(0.0, 10), steps(2.5, 10)]) == Window(2.5, 10.0)
    assert common_window([steps(0.0, 3), steps(9.0, 3)]) is None
    assert common_window([steps(0.0, 3), steps(0.0, 0)]) is None
    assert common_window([]) is None


def test_steps_are_cut_at_their_boundaries() -> None:
    mine = steps(0.0, 10).from_step(2)
    assert mine.step.tolist() == list(range(2, 10))
    assert mine.within(Window(3.4, 8.4)).window == Window(3.0, 8.0)
    assert mine.window.duration_s == pytest.approx(8.0)
