from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from driple.pipeline.bursts.spans import Spans, Weights, grid, spans_of, typical, without_flicker, without_pauses


def labels(text: str) -> Any:
    return np.array([c == "#" for c in text])


def shown(spans: Spans) -> str:
    parts = zip(spans.high, spans.last - spans.first + 1, strict=True)
    return "".join(("#" if high else ".") * int(count) for high, count in parts)


def times(n: int) -> Any:
    return np.arange(1, n + 1) * 0.01


def flicker(text: str, share: float = 0.2, never_s: float = np.inf) -> str:
    high, at = labels(text), grid(times(len(text)))
    spans = spans_of(high, at)
    return shown(without_flicker(spans, Weights(high * 1.0, at, (0.0, 1.0), spans), share, never_s))


def test_spans_have_exact_edges_and_the_first_and_last_are_partial() -> None:
    spans = spans_of(labels("..###...."), grid(times(9)))
    assert spans.high.tolist() == [False, True, False]
    assert spans.duration_s == pytest.approx([0.02, 0.03, 0.04])
    assert spans.whole.tolist() == [False, True, False]
    assert spans.start_s[1] == pytest.approx(0.02)


def test_a_gap_ends_a_span_and_leaves_both_sides_partial() -> None:
    t = np.r_[np.arange(1, 11), np.arange(31, 41)] * 0.01
    spans = spans_of(labels("..####....####......"), grid(t))
    assert spans.high.tolist() == [False, True, False, True, False]
    assert spans.whole.tolist() == [False, True, False, False, False]
    assert spans.duration_s[3] == pytest.approx(0.04)


def test_a_devices_own_samples_have_gaps_however_many_there_are() -> None:
    t = np.concatenate([k * 0.5 + np.arange(1, 11) * 0.02 for k in range(12)])  # 200 ms of samples, 300 ms of silence
    assert len(grid(t).after_gap) == 0  # to a counter's reads this is irregular, no more
    found = grid(t, device_s=0.02)
    assert found.after_gap.tolist() == list(range(10, 120, 10))
    assert found.duration_s == pytest.approx(0.02)
    lost: Any = np.delete(np.arange(1, 101) * 0.02, [20, 50])
    assert len(grid(lost, device_s=0.02).after_gap) == 0  # one lost sample is none


def test_irregular_times_are_no_gaps() -> None:
    t = np.cumsum(np.random.default_rng(3).exponential(0.01, 5000))
    assert len(grid(t).after_gap) <= 3


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("..........####.#####..........", "..........##########.........."),
        ("....####.#####....", "....####.#####...."),  # idle is that short here
        ("..........#.........##########..........", "....................##########.........."),
        ("..........##.#.##.#...........", "..........#########..........."),
        # The lone one goes, rather than the pause before it.
        ("...............##########..#...............", "...............##########.................."),
    ],
)
def test_flicker_goes_and_bursts_stay(before: str, after: str) -> None:
    assert flicker(before) == after


def test_what_lasts_too_long_is_no_flicker() -> None:
    text = "." * 40 + "#" * 20 + "." * 5 + "#" * 20 + "." * 40
    assert flicker(text) != text
    assert flicker(text, never_s=0.045) == text


def test_partial_spans_are_never_turned_over() -> None:
    assert flicker("#..........####..........#") == "#..........####..........#"


def test_pauses_are_closed_below_the_limit_only() -> None:
    spans = spans_of(labels("..##.##...##.."), grid(times(14)))
    assert shown(without_pauses(spans, 0.015)) == "..#####...##.."


def test_typical_is_where_half_of_the_time_is() -> None:
    assert typical(np.array([0.01] * 30 + [0.5, 0.6, 0.55])) == 0.55
    assert typical(np.zeros(0)) == 0.0


def test_nothing_has_no_spans() -> None:
    assert len(spans_of(np.zeros(0, dtype=bool), grid(np.zeros(0))).first) == 0
