"""Numbers for people."""

from __future__ import annotations

import math

import pytest

from driple.inspector.predict.number_format import figures, quantity
from driple.inspector.predict.prediction import Cycle
from driple.inspector.predict.prediction_text import aligned


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.26712, "s", "267 ms"),
        (1.2345, "s", "1.23 s"),
        (123.4, "s", "123 s"),
        (0.00012, "s", "0.120 ms"),
        (0.99999, "s", "1.00 s"),
        (0.0, "s", "0 ms"),
        (5.789e7, "B/s", "57.9 MB/s"),
        (5.4e9, "B/s", "5.40 GB/s"),
        (12.0, "B/s", "0.0120 kB/s"),
        (94.21, "%", "94.2 %"),
        (0.5, "%", "0.500 %"),
        (math.nan, "s", "-"),
    ],
)
def test_a_unit_that_fits(value: float, unit: str, text: str) -> None:
    assert quantity(value, unit) == text


def test_a_spread_has_the_unit_and_the_places_of_its_value() -> None:
    assert quantity(0.2671, "s", 0.0123) == "267 ±12 ms"
    assert quantity(5.789e7, "B/s", 2e5) == "57.9 ±0.2 MB/s"
    assert quantity(2.0, "s", math.nan) == "2.00 s"


def test_figures_have_no_exponent() -> None:
    assert [figures(value) for value in (123456.0, 1234.0, 12.34, 0.01234, 0.0)] == [
        "123456",
        "1234",
        "12.3",
        "0.0123",
        "0",
    ]


def test_columns_are_aligned() -> None:
    assert aligned([["a", "bb"], ["ccc", "d"]]) == ["a    bb", "ccc   d"]


def test_resources_that_disagree() -> None:
    assert Cycle(1.0, 0.9, 1.2).agreed
    assert not Cycle(1.0, 0.6, 1.4).agreed
