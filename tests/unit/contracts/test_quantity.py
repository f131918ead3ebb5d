"""Quantities with units."""

from __future__ import annotations

import pytest

from driple.contracts.quantity import DURATION, RATE, SHARE, ExpectedError, quantity


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (DURATION, "500ms", 0.5),
        (DURATION, " 1.5 H ", 5400.0),
        (DURATION, "2min", 120.0),
        (RATE, "1gbit", 1000.0),
        (SHARE, "0.5%", 0.5),
    ],
)
def test_values_are_in_the_base_unit(kind: str, text: str, value: float) -> None:
    assert quantity(kind, text) == pytest.approx(value)


@pytest.mark.parametrize("value", ["8", 8, None, "8 hours", "-8h", "1e3s", "", "nan s", "1gbit"])
def test_what_is_no_duration_says_what_is(value: object) -> None:
    with pytest.raises(ExpectedError, match="a duration with its unit such as '500ms'"):
        quantity(DURATION, value)
