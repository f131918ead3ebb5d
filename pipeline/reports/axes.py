"""Scales, ticks and labels of SVG charts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from driple.pipeline.reports.html import Html, join, tag

Label = Callable[[float], str]

WIDE = 20.0
"""Positive values get a logarithmic axis if the largest is more than this many times the smallest."""


@dataclass(frozen=True)
class Scale:
    """Maps values to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self._place(self.low), self._place(self.high)
        return self.start + (self._place(value) - low) / (high - low) * (self.end - self.start)

    def ticks(self, most: int = 5) -> list[float]:
        """Round values inside the range, about `most` of them."""
        found = self._log_ticks(most) if self.log else self._linear_ticks(most)
        return [value for value in found if self.low - 1e-12 <= value <= self.high * (1 + 1e-12)]

    def _place(self, value: float) -> float:
        return math.log10(value) if self.log else value

    def _linear_ticks(self, most: int) -> list[float]:
        span = self.high - self.low
        unit = 10.0 ** math.floor(math.log10(span / most))
        step = next(unit * factor for factor in (1, 2, 5, 10) if span / (unit * factor) < most + 1)
        first = math.ceil(self.low / step - 1e-9)
        return [index * step for index in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def _log_ticks(self, most: int) -> list[float]:
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for factors in ((1, 2, 5), (1, 3), (1,)):
            found = [factor * 10.0**decade for decade in decades for factor in factors]
            if sum(self.low <= value <= self.high for value in found) <= most:
                return found
        return [10.0**decade for decade in decades][:: math.ceil(len(decades) / most)]


def scale(values: Sequence[float], start: float, end: float, *, from_zero: bool = False, log: bool = False) -> Scale:
    """A scale for all values, which are finite. A logarithmic one needs positive values; equal values get a margin."""
    low, high = min(values), max(values)
    if log:
        return Scale(low / 1.1, high * 1.1, start, end, log=True)
    low = min(low, 0.0) if from_zero else low
    # A range that is lost in rounding counts as no range.
    room = (high - low) * 0.05 if high - low > 1e-9 * max(abs(high), abs(low)) else abs(high) * 0.1 or 1.0
    return Scale(low if from_zero and low == 0.0 else low - room, high + room, start, end)


def is_wide(values: Sequence[float]) -> bool:
    """Whether to use a logarithmic axis."""
    return min(values) > 0 and max(values) > WIDE * min(values)


def below(axis: Scale, y: float, label: Label, most: int = 5) -> Html:
    """The horizontal axis below a chart."""
    ticks = axis.ticks(most)
    return join(
        [
            tag("line", x1=n(axis.start), x2=n(axis.end), y1=n(y), y2=n(y), class_="axis"),
            *(tag("line", x1=n(axis(v)), x2=n(axis(v)), y1=n(y), y2=n(y + 4), class_="axis") for v in ticks),
            *(tag("text", label(v), x=n(axis(v)), y=n(y + 15), text_anchor="middle") for v in ticks),
        ]
    )


def beside(axis: Scale, x: float, end: float, label: Label, most: int = 4) -> Html:
    """The vertical axis on the left, with grid lines."""
    return join(
        join(
            [
                tag("line", x1=n(x), x2=n(end), y1=n(axis(v)), y2=n(axis(v)), class_="axis"),
                tag("text", label(v), x=n(x - 5), y=n(axis(v) + 4), text_anchor="end"),
            ]
        )
        for v in axis.ticks(most)
    )


def n(value: float) -> str:
    """A coordinate in pixels, rounded to a tenth."""
    return f"{value:.1f}".removesuffix(".0")
