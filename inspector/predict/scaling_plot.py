"""Scaling curves as a picture: examples/s, step time, the gain of an added worker, and what an epoch takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from driple.inspector.predict.number_format import scale_of
from driple.inspector.predict.plot_style import COLOURS, LIMIT_COLOUR, bare, drawn, provenance
from driple.inspector.predict.prediction import Prediction
from driple.inspector.predict.scaling_curve import (
    LEAST_GAIN,
    ScalingCurve,
    ScalingPoint,
    scaling_curves,
    without_workers,
)
from driple.inspector.predict.what_if import common_label
from driple.inspector.time.step_distribution import LEVEL


def figure(pyplot: Any, answers: Sequence[Prediction]) -> Any:
    """Four panels over the number of workers, a line per curve."""
    curves = scaling_curves(answers)
    points = [point for curve in curves for point in curve.points]
    made, axes = pyplot.subplots(2, 2, figsize=(11, 7.5), layout="constrained")
    rate, step, gain, last = axes.ravel()
    _lines(rate, curves, lambda point: point.rate)
    for number, curve in enumerate(curves):
        _ideal(rate, curve, COLOURS[number % len(COLOURS)], "in proportion to the workers" if number == 0 else None)
    rate.set_title("examples/s of the job", loc="left", fontsize=10)
    rate.legend(frameon=False, fontsize=9)
    _lines(step, curves, lambda point: point.step_s)
    told = any(point.answer.step is not None for point in points)
    step.set_title(
        f"step time [s]{f'; whiskers: {100 * LEVEL:.0f} % interval' if told else ''}", loc="left", fontsize=10
    )
    _whiskers(step, curves)
    _lines(gain, curves, lambda point: math.nan if point.gain is None else 100 * point.gain)
    gain.axhline(100 * LEAST_GAIN, color=LIMIT_COLOUR, linestyle="--", linewidth=1.2)
    gains = [100 * point.gain for point in points if point.gain is not None]
    gain.set_ylim(1.1 * min(0.0, *gains), 1.1 * max(100.0, *gains))
    gain.set_title("gain of each added worker [%]; dashed: the least that pays off", loc="left", fontsize=10)
    title, of = _last(points)
    _lines(last, curves, of)
    last.set_title(title, loc="left", fontsize=10)
    counts = sorted({point.workers for point in points})
    margin = 0.05 * (counts[-1] - counts[0])
    for axis in axes.ravel():
        axis.set_xlim(counts[0] - margin, counts[-1] + margin)
        axis.set_xticks(counts, [str(count) for count in counts])
        axis.set_xlabel("workers", fontsize=9)
        bare(axis)
    for axis in (rate, step, last):
        axis.set_ylim(bottom=0)
    varied = [name for name in ("batch_size", "update") if len({_fact(curve, name) for curve in curves}) > 1]
    where = "" if len({curve.setting for curve in curves}) > 1 else f"on {curves[0].setting}, "
    title = (
        f"predicted: {common_label(answers, ['setting', *varied], f', {where}')}{provenance(answers, without_workers)}"
    )
    made.suptitle(f"{title}\n{_verdict(curves)}", x=0.01, ha="left", fontsize=11)
    return made


def _lines(axis: Any, curves: Sequence[ScalingCurve], of: Callable[[ScalingPoint], float]) -> None:
    """A line per curve; the most workers that pay off are ringed."""
    for number, curve in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        x, y = [point.workers for point in curve.points], [of(point) for point in curve.points]
        label = _name(curve, curves) if len(curves) > 1 else "predicted"
        axis.plot(x, y, color=colour, linewidth=1.6, marker="o", markersize=5, label=label)
        if curve.ends:
            at = [point.workers for point in curve.points].index(curve.pays_off_to or 0)
            axis.scatter(x[at], y[at], s=130, facecolors="none", edgecolors=LIMIT_COLOUR, linewidths=1.6, zorder=3)


def _ideal(axis: Any, curve: ScalingCurve, colour: str, label: str | None) -> None:
    first = curve.points[0]
    x = [point.workers for point in curve.points]
    axis.plot(x, [first.rate / first.workers * count for count in x], color=colour, linestyle=":", label=label)


def _whiskers(axis: Any, curves: Sequence[ScalingCurve]) -> None:
    for number, curve in enumerate(curves):
        for point in curve.points:
            least, greatest = drawn(point.answer.step_interval(), point.step_s)
            if least != greatest:
                axis.vlines(point.workers, least, greatest, color=COLOURS[number % len(COLOURS)], linewidth=1.4)


def _last(points: Sequence[ScalingPoint]) -> tuple[str, Callable[[ScalingPoint], float]]:
    """The cost of an epoch where it is known, else its time, else the efficiency."""
    jobs = [point.answer.job for point in points if point.answer.job is not None]
    if len(jobs) < len(points):
        return "efficiency [%]", lambda point: 100 * point.efficiency
    if all(job.epoch_cost is not None for job in jobs):
        return "cost of an epoch", lambda point: float(getattr(point.answer.job, "epoch_cost", math.nan))
    size, unit = scale_of(max(job.epoch_s for job in jobs), "time")
    return f"epoch time [{unit}]", lambda point: float(getattr(point.answer.job, "epoch_s", math.nan)) / size


def _verdict(curves: Sequence[ScalingCurve]) -> str:
    if any(curve.pays_off_to is None for curve in curves):
        return "step times of several sources: not comparable"
    if any(curve.ends for curve in curves):
        return "ringed: the most workers that pay off"
    return "adding workers pays off up to the most that were asked for"


def _name(curve: ScalingCurve, curves: Sequence[ScalingCurve]) -> str:
    facts = [curve.setting] if len({one.setting for one in curves}) > 1 else []
    for name, title in (("batch_size", "batch "), ("update", "")):
        if len({_fact(one, name) for one in curves}) > 1:
            facts.append(f"{title}{_fact(curve, name)}")
    return ", ".join(facts)


def _fact(curve: ScalingCurve, name: str) -> str:
    return str(curve.points[0].answer.query.workload.get(name))
