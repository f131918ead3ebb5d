"""Burst and idle by hand: tiny series with exact answers, and all that is odd."""

from __future__ import annotations

import numpy as np
import pytest

from driple.contracts.metrics import BUSY, NETWORK
from driple.pipeline.bursts.burst_metrics import Bib, analyse, measure
from driple.pipeline.traces.series import LEVEL, FloatArray, Series


def square(text: str, *, high: float = 90.0, low: float = 10.0, kind: str = BUSY, period_s: float = 0.01) -> Series:
    value = np.array([high if c == "#" else low for c in text])
    return Series("s", np.arange(1, len(text) + 1) * period_s, value, "%", kind)


def test_whole_spans_count_and_partial_ones_do_not() -> None:
    found = measure(square("##...####......####..####.."))
    assert found.pattern == "BIB"
    assert found.bursts == 3
    assert found.burst_s == pytest.approx(0.04)
    assert found.idle_s == pytest.approx((0.03 + 0.06 + 0.02) / 3)
    assert (found.burst_amount, found.idle_amount) == pytest.approx((90.0, 10.0))
    assert found.burst_s_median == pytest.approx(0.04) and found.burst_s_spread == pytest.approx(0.0)
    assert found.idle_s_median == pytest.approx(0.03)
    assert found.period_s == pytest.approx((0.10 + 0.06) / 2)
    assert found.refresh_s == pytest.approx(0.01)


def test_the_sample_at_an_edge_counts_for_the_duration_and_not_for_the_amount() -> None:
    series = square("....######......######....")
    series.value[[4, 9, 16, 21]] = 60.0
    found = measure(series)
    assert found.burst_s == pytest.approx(0.06)
    assert found.burst_amount == pytest.approx(90.0)


@pytest.mark.parametrize(
    ("value", "kind", "pattern", "amount"),
    [
        (0.0, BUSY, "I", 0.0),
        (3.0, BUSY, "I", 0.0),
        (97.0, BUSY, "B", 97.0),
        (5e3, NETWORK, "I", 0.0),
        (5e7, NETWORK, "B", 5e7),
        (60.0, LEVEL, "B", 60.0),
        (0.0, LEVEL, "I", 0.0),
    ],
)
def test_a_constant_is_rest_or_burst_by_its_level(value: float, kind: str, pattern: str, amount: float) -> None:
    found = measure(Series("c", np.arange(100) * 0.01, np.full(100, value), "", kind), step_s=0.25)
    assert (found.pattern, found.bursts) == (pattern, 0)
    assert found.burst_amount == pytest.approx(amount)
    assert (found.burst_s, found.idle_s) == ((0.0, 0.25) if pattern == "I" else (0.25, 0.0))


def test_without_a_step_a_flat_line_lasts_as_long_as_was_looked() -> None:
    found = measure(Series("c", np.arange(100) * 0.01, np.full(100, 97.0), "%", BUSY))
    assert found.burst_s == pytest.approx(1.0)
    assert "duration_is_time_observed" in found.flags


@pytest.mark.parametrize(
    ("t", "value"),
    [([], []), ([1.0], [5.0]), ([1.0, 2.0, 3.0], [np.nan] * 3), ([2.0, 2.0, 2.0], [1.0, 5.0, 9.0])],
    ids=["empty", "one point", "all NaN", "one moment"],
)
def test_nothing_to_go_by_is_a_question_mark(t: list[float], value: list[float]) -> None:
    found = measure(Series("odd", np.array(t), np.array(value), "%", BUSY))
    assert found == Bib("?", flags=found.flags)
    assert found.flags[-1] == "no_data"


def test_one_step_up_is_two_levels_and_no_whole_span() -> None:
    found = measure(square("." * 30 + "#" * 30))
    assert (found.pattern, found.burst_s, found.idle_s, found.bursts) == ("BIB", None, None, 0)
    assert {"no_whole_burst", "no_whole_idle"} <= set(found.flags)
    assert (found.burst_amount, found.idle_amount) == pytest.approx((90.0, 10.0))


def test_a_lull_of_a_few_percent_is_not_idle() -> None:
    assert measure(square("####....####....####", high=97.0, low=94.0)).pattern == "B"


def test_nulls_and_gaps_are_told() -> None:
    series = square("..####......####......####......####..")
    series.value[[6, 7]] = np.nan
    assert "nulls:2" in measure(series).flags
    late = Series("s", np.r_[series.t_s[:20], series.t_s[20:] + 5.0], series.value, "%", BUSY)
    found = measure(late)
    assert "gaps:1" in found.flags
    assert found.idle_s is not None and found.idle_s < 0.07


def test_durations_below_two_refresh_periods_are_flagged() -> None:
    found = measure(square("...#......#......#......#...", high=9e7, low=0.0, kind=NETWORK))
    assert found.burst_s == pytest.approx(0.01)
    assert "burst_s_finer_than_refresh" in found.flags
    assert "idle_s_finer_than_refresh" not in found.flags


def test_a_gauge_that_is_held_is_measured_by_its_updates() -> None:
    t = np.arange(6000) * 0.01
    update = (t / 0.2 + 1e-9).astype(int)
    noise = np.random.default_rng(0).integers(-3, 4, update.max() + 1)
    value = (np.where(update % 10 < 4, 90.0, 8.0) + noise[update]).astype(float)
    found = measure(Series("gpu", t, value, "%", BUSY))
    assert "held" in found.flags
    assert found.refresh_s == pytest.approx(0.2, rel=0.02)
    assert found.burst_s == pytest.approx(0.8, abs=0.02)
    assert found.idle_s == pytest.approx(1.2, abs=0.02)


def test_a_step_that_the_samples_cannot_show_is_flagged() -> None:
    assert "step_finer_than_refresh" in measure(square("#.##.#.###..#.#.##.#"), step_s=0.012).flags


def test_traffic_that_pauses_inside_a_burst_is_one_burst_and_processors_are_not_so_forgiven() -> None:
    text = ("#" * 4 + "." * 5 + "#" * 4 + "." * 40) * 20
    network = measure(square("." * 30 + text, high=9e7, low=1e3, kind=NETWORK), step_s=0.53)
    assert network.burst_s == pytest.approx(0.13)
    busy = measure(square("." * 30 + text), step_s=0.53)
    assert busy.burst_s == pytest.approx(0.04)


def test_the_plain_form_has_the_names_that_the_command_promises() -> None:
    plain = measure(square("..####....####....####..")).to_json()
    promised = ["pattern", "burst_s", "idle_s", "burst_amount", "idle_amount"]
    promised += ["bursts", "period_s", "refresh_s", "flags"]
    assert list(plain)[: len(promised)] == promised
    assert isinstance(plain["flags"], list)


def test_an_analysis_shows_what_was_used() -> None:
    found = analyse(square("..####....####....####.."))
    assert found.spans is not None and found.spans.high.sum() == 3
    assert found.threshold is not None and 10.0 < found.threshold < 90.0
    assert analyse(square("." * 20)).spans is None


def test_a_device_that_is_silent_while_idle_is_not_busy_all_the_time() -> None:
    t = np.concatenate([k * 0.5 + np.arange(1, 11) * 0.02 for k in range(12)])
    found = measure(Series("gpu", t, np.full(len(t), 100.0), "%", BUSY, device_s=0.02))
    assert "gaps:11" in found.flags and found.bursts == 0
    assert found.burst_s == pytest.approx(2.4)  # what was seen, and nothing more


def test_what_a_device_stamps_itself_is_not_held_over_a_gap() -> None:
    t = np.concatenate([np.arange(1, 201) * 0.02, 10 + np.arange(1, 201) * 0.02])
    value: FloatArray = np.repeat(np.random.default_rng(5).permutation(80) + 10.0, 5)
    found = analyse(Series("gpu", t, value, "%", BUSY, device_s=0.02))
    assert "gaps:1" in found.bib.flags and found.bib.refresh_s == pytest.approx(0.02)
    assert found.t_s.tolist() == t.tolist()
