"""Quality of a measurement: hand-made series with known answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driple.agents.sampler.quality import ColumnQuality, Histogram, Reads, SourceQuality

MS = 1_000_000


@given(st.lists(st.integers(0, 10**13), min_size=1), st.sampled_from([0.0, 0.1, 0.5, 0.95, 0.99, 1.0]))
def test_quantiles_are_right_to_two_percent(values: list[int], share: float) -> None:
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    exact = sorted(values)[int(share * (len(values) - 1))]
    assert histogram.quantile(share) == pytest.approx(exact, rel=0.02)
    assert histogram.greatest == max(values)
    assert histogram.count == len(values)


def test_a_histogram_has_few_bins_whatever_it_is_given() -> None:
    histogram = Histogram()
    for i in range(200_000):
        histogram.add(i * i * 97)
    assert len(histogram._bins) < 1500
    assert Histogram().quantile(0.5) is None
    negative = Histogram()
    negative.add(-5)
    assert negative.quantile(0.5) == 0


def test_a_counter_polled_at_2_ms_that_changes_every_second_says_so() -> None:
    quality = SourceQuality(["nic_tx_bytes"], Reads(2 * MS))
    times = [i * 2 * MS for i in range(10_000)]
    for at in range(0, len(times), 64):
        block = times[at : at + 64]
        quality.reads.observe(block)
        quality.observe(block, [[t // (1000 * MS) for t in block]])
    summary = quality.summary()
    column = summary["columns"]["nic_tx_bytes"]
    assert column["refresh_ms"] == pytest.approx(1000, rel=0.02)
    assert column["held"] is True
    assert summary["asked_period_ms"] == 2
    assert summary["real_period_ms"]["median"] == pytest.approx(2, rel=0.02)
    assert (summary["reads"], summary["gaps"]) == (10_000, 0)


def test_a_counter_that_rests_between_bursts_is_not_held() -> None:
    column = ColumnQuality()
    times = [i * 10 * MS for i in range(1000)]
    values = [i if i % 100 < 20 else i - i % 100 + 20 for i in range(1000)]
    column.observe(times, values)
    summary = column.summary(10 * MS)
    assert summary["held"] is False
    assert summary["refresh_ms"] == pytest.approx(10, rel=0.02)


def test_a_value_that_never_changed_or_never_was_says_nothing_of_its_refresh() -> None:
    for values, nulls in (([5] * 100, 0), ([None] * 100, 100)):
        column = ColumnQuality()
        column.observe(range(100), values)
        assert column.summary(1.0) == {"nulls": nulls, "changes": 0, "refresh_ms": None, "held": None}


def test_nulls_are_counted_and_are_no_change_of_value() -> None:
    column = ColumnQuality()
    column.observe([i * MS for i in range(6)], [1, None, 1, None, None, 1])
    assert (column.nulls, column.changes.count) == (3, 0)


def test_gaps_are_counted_across_blocks() -> None:
    reads = Reads(10 * MS)
    for times in ([], [0, 10 * MS], [90 * MS, 100 * MS], []):
        reads.observe(times)
    summary = reads.summary()
    assert (summary["reads"], summary["gaps"]) == (4, 1)
    assert summary["real_period_ms"]["max"] == 80


def test_samples_with_times_of_their_own_give_the_refresh_period_by_these() -> None:
    quality = SourceQuality(["gpu_util_pct", "gpu_power_mw"], Reads(100 * MS))
    for batch in range(10):
        quality.observe([batch * 100 * MS], [[None], [70_000]])
        quality.observe_late([((batch * 6 + i) * 16_700_000, (0.0, None)) for i in range(6)])
    summary = quality.summary()
    assert summary["late_samples"] == 60
    assert summary["columns"]["gpu_util_pct"]["refresh_ms"] == pytest.approx(16.7, rel=0.02)
    assert summary["columns"]["gpu_power_mw"]["refresh_ms"] is None
