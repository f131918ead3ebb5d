"""Draws the series of a task with shaded bursts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from driple.contracts.metrics import RESOURCES
from driple.pipeline.bursts.burst_metrics import Analysis, analyse
from driple.pipeline.bursts.task_metrics import resource_series, step_time_s
from driple.pipeline.reports.axes import below, beside, n, scale
from driple.pipeline.reports.charts import figure, svg
from driple.pipeline.reports.html import Html, tag
from driple.pipeline.reports.measured_tables import resource_title
from driple.pipeline.reports.number_text import amount, counted, duration, with_unit
from driple.pipeline.traces.load_run import Run
from driple.pipeline.traces.series import FloatArray, Series, thinned

STEPS_SHOWN = 20
"""Limit of steps in a plot: bursts of hundreds would not be visible."""
_WIDTH, _LEFT, _RIGHT = 960.0, 64.0, 8.0
_ROW, _TITLE, _BOTTOM = 92.0, 20.0, 40.0
_MOST_POINTS = 1200


def task_picture(run: Run, task: str, more: Sequence[tuple[str, Series]] = ()) -> Html:
    """Plots all resources of a task, and other series with their titles, over the first steps of its measured part.

    Bursts are shaded, in grey if their start or end was not observed. The dashed line is the threshold, ticks at the
    top mark the starts of steps.
    """
    trace, step_s = run.tasks[task], step_time_s(run, task)
    cpu = run.manifest.on_cpu
    titled = [*more]
    for resource, series in zip(RESOURCES, resource_series(run, task).values(), strict=True):
        if series is not None:
            titled.append((resource_title(resource, cpu), series))
    found = [(title, series.unit, analyse(series, step_s=step_s)) for title, series in titled]
    window = trace.window
    end_s = window.end_s if step_s is None else min(window.end_s, window.start_s + STEPS_SHOWN * step_s)
    x = scale([0.0, end_s - window.start_s], _LEFT, _WIDTH - _RIGHT, from_zero=True)
    starts = np.zeros(0) if trace.steps is None else trace.steps.start_s - window.start_s
    content: list[object] = []
    spoken = []
    top = 0.0
    for title, unit, analysis in found:
        words = _described(analysis, unit)
        content.append(tag("text", f"{title}: {words}", x=n(_LEFT), y=n(top + 14)))
        content.append(_row(analysis, x, window.start_s, end_s, top + _TITLE, starts, unit))
        spoken.append(f"{title} {words}")
        top += _ROW + _TITLE
    content.append(below(x, top, duration, 8))
    part = end_s - window.start_s
    cut = part < 0.99 * window.duration_s
    shown = f"the first {duration(part)} of {duration(window.duration_s)} measured" if cut else "all measured"
    steps = "" if step_s is None else f", step {duration(step_s)}"
    alt = f"Traces of {task}{steps}. " + "; ".join(spoken)
    return figure(f"{task} on {trace.host}: {shown}{steps}", svg(_WIDTH, top + 24, alt, *content), wide=True)


def _row(analysis: Analysis, x: Any, origin_s: float, end_s: float, top: float, starts: FloatArray, unit: str) -> Html:
    bottom = top + _ROW - 8
    inside = (analysis.t_s >= origin_s) & (analysis.t_s <= end_s)
    t_s, value = thinned(analysis.t_s[inside] - origin_s, analysis.value[inside], _MOST_POINTS)
    if not len(value):
        return tag("text", "no samples here", x=n(x.start), y=n(top + 20))
    y = scale([0.0, float(np.max(value))], bottom, top, from_zero=True)
    parts: list[object] = []
    spans = analysis.spans
    if spans is not None:
        for name, which in (("burst", spans.high & spans.whole), ("partial", spans.high & ~spans.whole)):
            seen = which & (spans.end_s > origin_s) & (spans.start_s < end_s)
            start = np.maximum(spans.start_s[seen], origin_s) - origin_s
            stop = np.minimum(spans.end_s[seen], end_s) - origin_s
            boxes = "".join(
                f"M{n(x(a))} {n(top)}H{n(x(b))}V{n(bottom)}H{n(x(a))}z" for a, b in zip(start, stop, strict=True)
            )
            parts.append(tag("path", d=boxes, class_=name) if boxes else None)
    parts.append(beside(y, x.start, x.end, with_unit(unit), 3))
    if analysis.threshold is not None and y.low <= analysis.threshold <= y.high:
        at = n(y(analysis.threshold))
        parts.append(tag("line", x1=n(x.start), x2=n(x.end), y1=at, y2=at, class_="threshold"))
    # A sample stands for the time since the previous one, so the line goes up or down first.
    line = f"M{n(x(t_s[0]))} {n(y(value[0]))}" + "".join(
        f"V{n(y(v))}H{n(x(t))}" for t, v in zip(t_s[1:], value[1:], strict=True)
    )
    parts.append(tag("path", d=line, class_="value"))
    strokes = "".join(f"M{n(x(s))} {n(top - 4)}v7" for s in starts if 0 <= s <= end_s - origin_s)
    parts.append(tag("path", d=strokes, class_="step") if strokes else None)
    return tag("g", *parts)


def _described(analysis: Analysis, unit: str) -> str:
    bib = analysis.bib
    if bib.pattern != "BIB":
        return f"pattern {bib.pattern}"
    return (
        f"burst {duration(bib.burst_s)}, idle {duration(bib.idle_s)}, {amount(bib.burst_amount, unit)} in bursts, "
        f"{counted(bib.bursts, 'burst')}"
    )
