"""Charts as inline SVG in the colours of the page. Each has a text alternative for screen readers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from driple.pipeline.reports.axes import Label, Scale, below, beside, is_wide, n, scale
from driple.pipeline.reports.html import Html, join, tag
from driple.pipeline.reports.number_text import counted, median, plain
from driple.pipeline.reports.style import COLOURS

WIDTH, HEIGHT = 320.0, 180.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 48.0, 20.0, 12.0, 34.0
_MOST_BINS = 30
_BAR, _GROUP_GAP = 13.0, 10.0
_LETTER, _CUT = 7.0, " (cut)"
_MOST_POINTS = 2000
"""Limit for scatter plots: more points cannot be told apart and make the page large."""


def svg(width: float, height: float, alt: str, *content: object) -> Html:
    """An image with its text alternative."""
    return tag("svg", *content, viewBox=f"0 0 {n(width)} {n(height)}", role="img", aria_label=alt)


def figure(title: str, picture: Html, *, wide: bool = False) -> Html:
    """An image with its title; a wide one scrolls."""
    inner = tag("div", picture, class_="scroll wide", tabindex=0, role="region", aria_label=title) if wide else picture
    return tag("figure", tag("figcaption", title), inner)


def legend(names: Sequence[str]) -> Html:
    """The names of the series, in the order of their colours."""
    items = [
        tag("li", svg(10, 10, "colour", tag("rect", width=10, height=10, class_=f"f{i % COLOURS}")), name)
        for i, name in enumerate(names)
    ]
    return tag("ul", *items, class_="legend")


def histogram(title: str, values: Sequence[float], label: Label, *, mark: tuple[float, str] | None = None) -> Html:
    """Draws a histogram of the finite values.

    Args:
        label: formats a value with its unit.
        mark: a value to highlight, and its name.
    """
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return figure(title, tag("p", "no values", class_="soft"))
    reach = [*known, mark[0]] if mark is not None else known
    log = is_wide(reach)
    x = scale(reach, _LEFT, WIDTH - _RIGHT, log=log, from_zero=mark is not None)
    bins = max(8, min(_MOST_BINS, round(2 * math.sqrt(len(known)))))
    counts = [0] * bins
    for value in known:
        counts[min(bins - 1, int(bins * (x(value) - x.start) / (x.end - x.start)))] += 1
    y = scale([0.0, float(max(counts))], HEIGHT - _BOTTOM, _TOP, from_zero=True)
    width = (x.end - x.start) / bins
    bars = [
        tag("rect", x=n(x.start + i * width + 0.5), y=n(y(c)), width=n(width - 1), height=n(y(0) - y(c)), class_="bar")
        for i, c in enumerate(counts)
        if c
    ]
    middle = median(known)
    alt = f"Histogram of {title}: {counted(len(known), 'value')} from {label(min(known))} to {label(max(known))}"
    alt += "" if middle is None else f", median {label(middle)}"
    content: list[object] = [beside(y, x.start, x.end, _whole, 3), *bars, below(x, y(0), label, 3)]
    if mark is not None:
        alt += f"; {mark[1]} at {label(mark[0])}"
        at = x(mark[0])
        shift, side = (-4, "end") if at > (x.start + x.end) / 2 else (4, "start")
        content += [
            tag("line", x1=n(at), x2=n(at), y1=n(_TOP), y2=n(y(0)), class_="mark"),
            tag("text", mark[1], x=n(at + shift), y=n(_TOP + 8), text_anchor=side),
        ]
    return figure(title, svg(WIDTH, HEIGHT, alt, *content))


@dataclass(frozen=True)
class Point:
    """A point of a scatter plot."""

    x: float
    y: float
    name: str = ""
    spread: float | None = None
    """Half the length of the error bar of `y`."""


def scatter(title: str, points: Sequence[Point], label: Label, x_name: str, y_name: str) -> Html:
    """Draws points of two values that should be equal, and the line on which they are."""
    known = [p for p in points if math.isfinite(p.x) and math.isfinite(p.y)]
    if not known:
        return figure(title, tag("p", "no values", class_="soft"))
    shown = known[:: math.ceil(len(known) / _MOST_POINTS)]
    both = [value for p in known for value in (p.x, p.y)]
    log = is_wide(both)
    x = scale(both, _LEFT + 14, WIDTH - _RIGHT, log=log, from_zero=not log)
    y = Scale(x.low, x.high, WIDTH * 0.8 - _BOTTOM, _TOP, log)
    spreads = [
        tag("line", x1=n(x(p.x)), x2=n(x(p.x)), y1=n(y(_in(y, p.y - p.spread))), y2=n(y(_in(y, p.y + p.spread))))
        for p in shown
        if p.spread is not None and math.isfinite(p.spread)
    ]
    dots = [tag("circle", tag("title", p.name) if p.name else None, cx=n(x(p.x)), cy=n(y(p.y)), r=3) for p in shown]
    near = sum(abs(p.y - p.x) <= 0.1 * abs(p.x) for p in known)
    alt = f"{title}: {counted(len(known), 'point')}, {near} of them within 10 % of the line on which both are equal"
    return figure(
        title,
        svg(
            WIDTH,
            WIDTH * 0.8,
            alt,
            beside(y, x.start, x.end, label, 4),
            tag("line", x1=n(x.start), y1=n(y.start), x2=n(x.end), y2=n(y.end), class_="same"),
            tag("g", *spreads, class_="spread") if spreads else None,
            tag("g", *dots, class_="dot f0"),
            below(x, y.start, label, 4),
            tag("text", x_name, x=n(x.end), y=n(WIDTH * 0.8 - 4), text_anchor="end"),
            tag("text", y_name, x=n(x.start + 4), y=n(_TOP + 2)),
        ),
    )


def bars(title: str, labels: Sequence[str], series: Mapping[str, Sequence[float | None]], label: Label) -> Html:
    """Draws a group of bars for each label with values. Bars far above the others are cut."""
    width, left = 760.0, 190.0
    known = sorted(v for values in series.values() for v in values if v is not None and math.isfinite(v))
    if not known:
        return figure(title, tag("p", "no values", class_="soft"))
    reach = min(known[-1], max(2.5 * known[int(0.75 * (len(known) - 1))], 1e-9))
    room = min(max(_LETTER * len(label(value) + _CUT) for value in known), width / 2)
    x = scale([0.0, reach], left, width - room, from_zero=True)
    content: list[object] = []
    top = _TOP
    groups = [(name, values) for i, name in enumerate(labels) if (values := _known(series, i))]
    for name, values in groups:
        content.append(tag("text", name, x=n(left - 8), y=n(top + len(series) * _BAR / 2 + 4), text_anchor="end"))
        for number, _, value in values:
            y, end, colour = top + number * _BAR, x(min(max(value, 0.0), x.high)), f"f{number % COLOURS}"
            content += [
                tag("rect", x=n(left), y=n(y + 0.5), width=n(max(end - left, 0.5)), height=n(_BAR - 1), class_=colour),
                tag("text", label(value) + (_CUT if value > x.high else ""), x=n(end + 4), y=n(y + 10.5)),
            ]
        top += len(series) * _BAR + _GROUP_GAP
    content.append(below(x, top, label, 6))
    alt = f"{title}. " + "; ".join(
        f"{name}: " + ", ".join(f"{kind} {label(value)}" for _, kind, value in values) for name, values in groups
    )
    return join([legend(list(series)), figure(title, svg(width, top + 24, alt, *content), wide=True)])


def lines(
    title: str, curves: Sequence[tuple[int, Sequence[float]]], label: Label, x_name: str, marks: Sequence[int] = ()
) -> Html:
    """Draws curves, each a colour and values, over their positions 0, 1, 2, ...; highlights the positions `marks`."""
    known = [v for _, values in curves for v in values if math.isfinite(v)]
    if not known:
        return figure(title, tag("p", "no values", class_="soft"))
    longest = max(len(values) for _, values in curves)
    log = is_wide(known)
    x = scale([0.0, float(max(longest - 1, 1))], _LEFT + 8, WIDTH - _RIGHT, from_zero=True)
    y = scale(known, HEIGHT - _BOTTOM, _TOP, log=log, from_zero=not log)
    content: list[object] = [beside(y, x.start, x.end, label, 4), below(x, y.start, _whole, 5)]
    for colour, values in curves:
        points = " ".join(f"{n(x(i))},{n(y(v))}" for i, v in enumerate(values) if math.isfinite(v))
        content.append(tag("polyline", points=points, class_=f"curve l{colour % COLOURS}"))
    for position, (_, values) in zip(marks, curves, strict=False):
        if 0 <= position < len(values) and math.isfinite(values[position]):
            content.append(tag("circle", cx=n(x(position)), cy=n(y(values[position])), r=4, class_="f5"))
    content.append(tag("text", x_name, x=n(x.end), y=n(HEIGHT - 3), text_anchor="end"))
    least, last = min(known), ", ".join(label(values[-1]) for _, values in curves if values)
    length = f"{counted(len(curves), 'curve')} over {counted(longest, x_name)}"
    alt = f"{title}: {length}, least {label(least)}, at the end {last}"
    return figure(title, svg(WIDTH, HEIGHT, alt, *content))


def _known(series: Mapping[str, Sequence[float | None]], i: int) -> list[tuple[int, str, float]]:
    each = ((number, name, values[i]) for number, (name, values) in enumerate(series.items()))
    return [(number, name, value) for number, name, value in each if value is not None and math.isfinite(value)]


def _in(axis: Scale, value: float) -> float:
    return min(max(value, axis.low), axis.high)


def _whole(value: float) -> str:
    return plain(value) if value == round(value) else ""
