from __future__ import annotations

import numpy as np

from driple.pipeline.traces.refresh import find_refresh, real_updates
from driple.pipeline.traces.series import Series, usable


def test_what_is_unknown_or_steps_back_is_left_out_and_counted() -> None:
    t = np.array([0.0, 1.0, 1.0, 0.5, 2.0, np.nan, 3.0])
    found = usable(t, np.array([1.0, np.nan, 2.0, 3.0, np.inf, 4.0, 5.0]))
    assert found.t_s.tolist() == [0.0, 1.0, 3.0]
    assert found.value.tolist() == [1.0, 2.0, 5.0]
    assert found.dropped == 4


def test_a_window_takes_samples_whose_own_time_is_inside() -> None:
    series = Series("s", np.arange(10.0), np.arange(10.0), "")
    assert series.between(2.5, 6.0).t_s.tolist() == [4.0, 5.0, 6.0]
    assert series.between(20.0, 30.0).t_s.tolist() == []


def test_a_held_gauge_is_found_and_collapsed_to_its_updates() -> None:
    t = np.arange(3000) * 0.01
    updates = np.random.default_rng(1).integers(0, 100, 300).astype(float)
    held = updates[np.minimum((t / 0.1 + 1e-9).astype(int), 299)]
    found = find_refresh(t, held)
    assert found.held
    assert found.period_s is not None and abs(found.period_s - 0.1) < 0.002
    times, values = real_updates(t, held, found.period_s)
    assert abs(len(times) - 300) <= 2
    assert np.allclose(np.diff(times), 0.1, atol=0.011)
    assert values[:20].tolist() == updates[:20].tolist()


def test_values_that_change_at_every_read_are_not_held() -> None:
    t = np.arange(300) * 0.01
    found = find_refresh(t, np.random.default_rng(1).random(300))
    assert not found.held and found.period_s is not None and abs(found.period_s - 0.01) < 1e-9


def test_an_exact_on_off_wave_is_a_wave_and_not_a_slow_gauge() -> None:
    t = np.arange(3000) * 0.01
    assert not find_refresh(t, np.where(np.arange(3000) % 40 < 20, 95.0, 0.0)).held


def test_a_constant_has_no_refresh_period() -> None:
    assert find_refresh(np.arange(100.0), np.ones(100)).period_s is None
