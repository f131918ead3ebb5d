from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from driple.contracts.metrics import NETWORK
from driple.pipeline.bursts.burst_metrics import measure
from driple.pipeline.traces.rates import rate
from driple.pipeline.traces.refresh import real_updates
from driple.pipeline.traces.series import Series

T = np.arange(200) * 0.01


def test_a_steady_counter_has_a_steady_rate_stamped_at_the_end_of_each_interval() -> None:
    found = rate(T, np.arange(200) * 1000)
    assert found.t_s.tolist() == T[1:].tolist()
    assert found.per_s == pytest.approx(np.full(199, 1e5))
    assert found.flags == ()


def test_a_32_bit_wrap_is_made_good_and_counted() -> None:
    count: Any = (2**32 - 50_000 + np.arange(200) * 1000) % 2**32
    found = rate(T, count)
    assert (found.wraps, found.resets) == (1, 0)
    assert found.per_s == pytest.approx(np.full(199, 1e5))
    assert found.flags == ("wraps:1",)


def test_a_64_bit_wrap_is_made_good_with_all_digits() -> None:
    count: Any = np.arange(200, dtype=np.uint64) * np.uint64(1000) + np.uint64(2**64 - 50_000)
    assert rate(T, count).per_s == pytest.approx(np.full(199, 1e5))


def test_a_reset_is_unknown_and_not_negative() -> None:
    count: Any = np.arange(200) * 1000 + 10**9
    count[100:] -= 10**9
    found = rate(T, count)
    assert (found.wraps, found.resets) == (0, 1)
    assert np.flatnonzero(np.isnan(found.per_s)).tolist() == [99]
    assert np.nanmin(found.per_s) >= 0.0


def test_a_reset_below_the_32_bit_limit_is_no_wrap() -> None:
    count: Any = np.arange(200) * 1000 + 3_000_000_000
    count[100:] -= 3_000_000_000
    assert rate(T, count).resets == 1


def test_nulls_spread_what_was_counted_over_the_time_it_took() -> None:
    count: Any = np.arange(200) * 1000.0
    count[50:53] = np.nan
    found = rate(T, count)
    assert len(found.per_s) == 196
    assert found.per_s == pytest.approx(np.full(196, 1e5))


def test_reads_that_fall_close_together_are_one_so_that_ticks_give_no_absurd_rates() -> None:
    t = np.sort(np.r_[T, 0.5001, 0.5002])
    ticks = np.floor(t / 0.004 + 0.4) * 4e6  # CPU time that advances by 4 ms
    ticks[t > 0.50005] += 4e6
    found = rate(t, ticks, limit_per_s=2e9)
    assert found.per_s.max() <= 2e9
    assert len(found.t_s) == 199


def test_what_cannot_be_is_set_to_the_limit_and_counted() -> None:
    count: Any = np.arange(200) * 10_000_000
    count[100:] += 10**9
    found = rate(T, count, limit_per_s=2e9)
    assert found.per_s.max() == 2e9
    assert found.flags == ("clamped:1",)


@pytest.mark.parametrize("n", [0, 1])
def test_too_few_reads_give_no_rate(n: int) -> None:
    found = rate(T[:n], np.arange(n))
    assert len(found.per_s) == 0 and found.refresh.period_s is None


def test_a_slow_counter_is_seen_as_it_was_renewed() -> None:
    """Renewed every 100 ms, read every 10: nine rests and a jump are one steady rate."""
    t = np.arange(2000) * 0.01
    count: Any = np.floor(t / 0.1 + 1e-9) * 0.1 * 5e6
    found = rate(t, count)
    assert found.refresh.held and found.refresh.period_s == pytest.approx(0.1)
    assert found.per_s == pytest.approx(np.full(len(found.per_s), 5e6))


def test_a_slow_counter_that_rests_keeps_its_rests() -> None:
    t = np.arange(6000) * 0.01
    renewed = np.floor(t / 0.1 + 1e-9) * 0.1
    phase = renewed % 2.0
    count: Any = np.floor(renewed / 2.0) * 0.5e6 + np.clip(phase, 0.0, 0.5) * 1e6  # a burst of 0.5 s every 2 s
    found = rate(t, count)
    assert found.refresh.held
    busy = found.per_s > 5e5
    assert np.sum(np.diff(found.t_s)[busy[1:]]) == pytest.approx(60 * 0.25, rel=0.05)


@pytest.mark.parametrize("went_on", [True, False])
def test_a_slow_counter_that_was_not_read_for_long_is_unknown_there(went_on: bool) -> None:
    t = np.arange(800) * 0.01
    renewed: Any = np.floor(t / 0.2 + 1e-9) * 0.2
    count: Any = renewed * 5e6
    if not went_on:
        count[t > 5] -= 3 * 5e6
    read = (t <= 2) | (t > 5)
    found = rate(t[read], count[read])
    assert found.refresh.held
    known = np.isfinite(found.per_s)
    assert found.per_s[known] == pytest.approx(np.full(np.count_nonzero(known), 5e6))
    assert not ((found.t_s[known] > 2.01) & (found.t_s[known] < 5.2)).any()
    bib = measure(Series("rx", found.t_s, found.per_s, "B/s", NETWORK, found.refresh.period_s))
    assert "gaps:1" in bib.flags


def test_a_slow_counter_that_rested_before_it_was_not_read_is_known_to_rest_until_then() -> None:
    t = np.arange(1200) * 0.01
    count: Any = np.minimum(np.floor(t / 0.2 + 1e-9) * 0.2, 3.0) * 5e6
    count[t > 9] += np.floor((t[t > 9] - 9) / 0.2) * 1e6
    read = (t <= 5) | (t > 8)
    found = rate(t[read], count[read])
    resting = (found.t_s > 3.3) & (found.t_s <= 5)
    assert np.count_nonzero(resting) >= 8 and (found.per_s[resting] == 0).all()
    inside = (found.t_s > 5.01) & (found.t_s < 9.1)
    assert np.isnan(found.per_s[inside]).all()


def test_a_counter_that_moves_once_a_step_is_not_slow() -> None:
    t = np.arange(6000) * 0.01
    count: Any = np.floor(t / 0.5 + 1e-9) * 1e6
    assert rate(t, count).refresh.held
    assert not rate(t, count, step_s=0.5).refresh.held


@given(st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=50))
def test_no_rate_is_ever_negative(counts: list[int]) -> None:
    found = rate(np.arange(len(counts)) * 0.01, np.array(counts, dtype=np.uint64))
    assert not np.any(found.per_s < 0)


@given(st.lists(st.integers(0, 10**6), min_size=3, max_size=80))
def test_what_was_counted_is_what_the_rates_add_up_to(gains: list[int]) -> None:
    random = np.random.default_rng(len(gains))
    t = np.cumsum(random.uniform(0.008, 0.012, len(gains)))
    found = rate(t, np.cumsum(gains))
    if not found.refresh.held:
        assert np.sum(found.per_s * np.diff(np.r_[t[0], found.t_s])) == pytest.approx(sum(gains[1:]))


def test_a_held_gauge_is_not_held_where_it_was_not_read() -> None:
    t = np.arange(800) * 0.01
    read = (t <= 2) | (t > 5)
    times, values = real_updates(t[read], np.floor(t[read] / 0.2 + 1e-9), 0.2)
    assert not ((times > 2.01) & (times < 5)).any()
    assert len(times) == len(values) == pytest.approx(26, abs=1)


def test_a_damaged_time_needs_no_memory_for_the_time_that_it_claims() -> None:
    """One read that claims to be 30 000 years after the others: nothing is known of that time."""
    t = np.r_[np.arange(2000) * 0.01, 1e12 + np.arange(2000) * 0.01]
    count: Any = np.floor(np.arange(4000) / 10) * 5e5
    found = rate(t, count)
    assert found.refresh.held and len(found.per_s) < len(t)
    times, values = real_updates(t, count, 0.1)
    assert len(times) == len(values) < len(t)


def polled(ratio: float, *, bursts: bool, jitter: float, seconds: float = 20.0) -> tuple[Any, Any]:
    """Reads, every 5 ms, of a byte count that its source updates every `ratio` reads."""
    random = np.random.default_rng(round(100 * ratio))
    n = round(seconds / 0.005)
    reads = np.sort(np.arange(n) * 0.005 + random.normal(0, jitter * 0.005, n))
    update = np.floor(reads / (ratio * 0.005) + 0.37).astype(int)
    t = np.arange(update.min(), update.max() + 1) * ratio * 0.005
    active = np.floor(t / 0.5) * 0.2 + np.clip(t % 0.5, 0.0, 0.2) if bursts else t
    amounts = np.diff(active, prepend=active[0]) * 80e6 * random.normal(1.0, 0.05, len(t))
    return reads, np.cumsum(np.floor(amounts))[update - update.min()]


@pytest.mark.parametrize("jitter", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("ratio", [1.25, 1.5, 1.8, 1.97, 2.0, 2.03, 2.3, 2.5, 3.0, 3.37])
def test_a_count_that_is_polled_faster_than_it_is_updated_has_no_false_bursts(ratio: float, jitter: float) -> None:
    steady = rate(*polled(ratio, bursts=False, jitter=jitter))
    assert steady.refresh.held and steady.refresh.period_s == pytest.approx(ratio * 0.005, rel=0.02)
    found = measure(Series("tx", steady.t_s, steady.per_s, "B/s", NETWORK, steady.refresh.period_s))
    assert found.pattern == "B" and found.burst_amount == pytest.approx(80e6, rel=0.02)
    waves = rate(*polled(ratio, bursts=True, jitter=jitter))
    assert waves.refresh.held and waves.refresh.period_s == pytest.approx(ratio * 0.005, rel=0.02)
    found = measure(Series("tx", waves.t_s, waves.per_s, "B/s", NETWORK, waves.refresh.period_s))
    assert found.pattern == "BIB" and found.bursts == pytest.approx(39, abs=1)
    assert found.burst_s == pytest.approx(0.2, abs=0.006)


def counted(moved: Any) -> Any:
    """A counter that grows at the reads of which `moved` is true, by amounts that vary."""
    amounts = 1e5 * np.random.default_rng(7).lognormal(0, 0.3, len(moved))
    return np.floor(np.cumsum(np.where(moved, amounts, 0.0)))


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 0.5, 0.7, 0.9])
def test_a_count_that_is_idle_at_random_reads_is_left_alone(share: float) -> None:
    moved = np.random.default_rng(3).random(4000) < share
    assert not rate(np.arange(4000) * 0.005, counted(moved)).refresh.held


@pytest.mark.parametrize("irregular", [0.05, 0.2])
def test_a_workload_that_works_about_every_other_read_is_left_alone(irregular: float) -> None:
    pulses = np.cumsum(0.01 * (1 + irregular * np.random.default_rng(3).normal(size=2000)))
    moved = np.histogram(pulses, np.arange(4001) * 0.005)[0] > 0
    assert not rate(np.arange(4000) * 0.005, counted(moved)).refresh.held


def test_a_few_alternations_are_no_evidence() -> None:
    moved = np.isin(np.arange(4000), np.arange(100, 124, 2))
    assert not rate(np.arange(4000) * 0.005, counted(moved)).refresh.held


def test_updates_that_were_not_read_in_time_are_spread_over_the_time_between_the_reads() -> None:
    t = np.arange(2000) * 0.01
    count = np.floor(t / 0.1 + 1e-9) * 5e5
    read = (t < 5) | (t >= 5.3)
    found = rate(t[read], count[read])
    assert found.refresh.held and found.per_s == pytest.approx(np.full(len(found.per_s), 5e6))
