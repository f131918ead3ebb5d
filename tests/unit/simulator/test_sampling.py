"""What a sampler sees of a known timeline."""

from __future__ import annotations

import numpy as np
import pytest

from driple.simulator.sampling import counter, gauge, samples
from driple.simulator.timeline import timeline

BUSY_HALF_A_SECOND = timeline([(0.0, 0.5, 0.5), (1.0, 1.5, 0.5)])


def test_stretches_of_the_same_time_add_up() -> None:
    line = timeline([(0.0, 2.0, 4.0), (1.0, 3.0, 2.0)])
    assert line.until(np.array([1.0, 2.0, 3.0, 9.0])) == pytest.approx([2.0, 5.0, 6.0, 6.0])


def test_nothing_is_a_flat_line() -> None:
    assert timeline([]).until(np.array([0.0, 5.0])).tolist() == [0.0, 0.0]


def test_a_counter_shows_whole_units() -> None:
    found = counter(timeline([(0.0, 1.0, 10.0)]), np.array([0.0, 0.25, 1.0]))
    assert found.value.tolist() == [0.0, 2.0, 10.0]


def test_samples_are_means_of_the_period_before_their_stamp() -> None:
    found = samples(BUSY_HALF_A_SECOND, 1.5, period_s=0.2)
    assert found.t_s[:4] == pytest.approx([0.2, 0.4, 0.6, 0.8])
    assert found.value[:4].tolist() == [100.0, 100.0, 50.0, 0.0]
    assert found.period_s == 0.2


def test_the_gauge_averages_over_its_window() -> None:
    found = gauge(BUSY_HALF_A_SECOND, np.array([0.5, 0.6, 1.0, 1.25]), window_s=0.5)
    assert found.value.tolist() == [100.0, 80.0, 0.0, 50.0]
