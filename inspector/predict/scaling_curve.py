"""ScalingCurve: one job on several numbers of workers, and where adding one stops paying off.

    rate       = examples/s of all workers together
    speed-up   = rate / rate of the fewest workers
    efficiency = speed-up / (workers / fewest workers)
    gain       = (rate - rate before) / (workers - workers before), as a share of the rate of each of the fewest workers

The batch of a worker stays the same, so that of the job grows with the workers. Adding workers pays off while the gain
is LEAST_GAIN or more: below one half, a further example costs more than twice as much as one of the fewest workers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from driple.inspector.predict.number_format import NONE, figures, quantity, span
from driple.inspector.time.step_distribution import LEVEL

if TYPE_CHECKING:
    from driple.inspector.predict.prediction import Prediction

LEAST_GAIN = 0.5
"""Of an added worker."""


@dataclass(frozen=True, eq=False)
class ScalingPoint:
    """A number of workers."""

    answer: Prediction
    rate: float
    """Examples/s of all workers together."""
    speed_up: float
    efficiency: float
    gain: float | None
    """Of each worker that was added; None for the fewest."""

    @property
    def workers(self) -> int:
        return self.answer.query.setting.workers

    @property
    def step_s(self) -> float:
        return self.answer.step_time_s or 0.0


@dataclass(frozen=True, eq=False)
class ScalingCurve:
    """The same job on settings that differ in their number of workers, in ascending order."""

    points: tuple[ScalingPoint, ...]

    @property
    def setting(self) -> str:
        """Of all points, with `w*` for the number of workers."""
        return without_workers(self.points[0].answer)

    @property
    def sources(self) -> tuple[str, ...]:
        """What tells the step times: the time model, a simulation, inspectors. Several cannot be compared.

        Two inspectors are several: each has learned from its own rows, maybe of another machine.
        """
        return tuple(dict.fromkeys(_source(point.answer) for point in self.points))

    @property
    def pays_off_to(self) -> int | None:
        """The most workers that pay off, one addition after another; None if the points cannot be compared."""
        if len(self.sources) > 1:
            return None
        found = self.points[0].workers
        for point in self.points[1:]:
            if point.gain is None or point.gain < LEAST_GAIN:
                break
            found = point.workers
        return found

    @property
    def ends(self) -> bool:
        """Whether one of the additions does not pay off."""
        return self.pays_off_to not in (None, self.points[-1].workers)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        workload = self.points[0].answer.query.workload
        return {
            "setting": self.setting,
            **{name: workload.get(name) for name in ("batch_size", "update")},
            **{"least_gain": LEAST_GAIN, "pays_off_up_to": self.pays_off_to, "step_times_from": list(self.sources)},
            "points": [_point_json(point) for point in self.points],
        }


def scaling_curves(answers: Sequence[Prediction]) -> tuple[ScalingCurve, ...]:
    """A curve for all answers that differ in nothing but the number of workers. Those without a step time are left out.

    A curve has two points or more.
    """
    groups: dict[Any, list[Prediction]] = defaultdict(list)
    for one in answers:
        if one.examples_per_s is not None:
            workload = one.query.workload
            key = replace(one.query.setting, workers=1), workload.get("batch_size"), workload.get("update")
            groups[key].append(one)
    return tuple(_curve(group) for group in groups.values() if len(group) > 1)


def without_workers(answer: Prediction) -> str:
    """Its setting, with `w*` for the number of workers."""
    setting = answer.query.setting
    return f"{setting.device}-p{setting.servers}w*-{setting.network}"


def _curve(answers: Sequence[Prediction]) -> ScalingCurve:
    ordered = sorted(answers, key=lambda one: one.query.setting.workers)
    counts = [one.query.setting.workers for one in ordered]
    rates = [one.examples_per_s or 0.0 for one in ordered]
    each = rates[0] / counts[0]
    points = []
    for place, (one, count, rate) in enumerate(zip(ordered, counts, rates, strict=True)):
        gain = None if place == 0 else (rate - rates[place - 1]) / (count - counts[place - 1]) / each
        points.append(ScalingPoint(one, rate, rate / rates[0], rate / count / each, gain))
    return ScalingCurve(tuple(points))


def _source(answer: Prediction) -> str:
    step = answer.step_time
    assert step is not None
    return step.source if step.resource is None else f"the inspector of {answer.setting}"


def _point_json(point: ScalingPoint) -> dict[str, Any]:
    job, interval = point.answer.job, point.answer.step_interval()
    return {
        **{"workers": point.workers, "setting": point.answer.setting, "step_time_s": point.step_s},
        "step_interval_s": None if interval is None else [one if one < float("inf") else None for one in interval],
        **{"examples_per_s": point.rate, "speed_up": point.speed_up, "efficiency": point.efficiency},
        **{"gain": point.gain, "epoch_s": None if job is None else job.epoch_s},
        "epoch_cost": None if job is None else job.epoch_cost,
    }


def lines(curve: ScalingCurve, title: str) -> list[str]:
    """The curve as a table, and where it ends to pay off."""
    from driple.inspector.predict.prediction_text import aligned

    head = ["workers", "step time", f"{100 * LEVEL:.0f} % interval", "examples/s", "speed-up", "efficiency"]
    head += ["gain", "epoch time", "cost of it"]
    rows = [head]
    for point in curve.points:
        job, interval = point.answer.job, point.answer.step_interval()
        cost = None if job is None else job.epoch_cost
        rows.append(
            [
                f"{point.workers}{' <' if curve.ends and point.workers == curve.pays_off_to else '  '}",
                quantity(point.step_s, "s"),
                NONE if interval is None else span(interval, "s"),
                figures(point.rate),
                f"{point.speed_up:.2f}",
                f"{100 * point.efficiency:.0f} %",
                NONE if point.gain is None else f"{round(100 * point.gain)} %",
                NONE if job is None else quantity(job.epoch_s, "time"),
                NONE if cost is None else figures(cost),
            ]
        )
    known = [any(row[column] != NONE for row in rows[1:]) for column in range(len(head))]
    rows = [[cell for cell, shown in zip(row, known, strict=True) if shown] for row in rows]
    return [f"scaling of {title}", *aligned(rows, left=1), *_verdict(curve)]


def _verdict(curve: ScalingCurve) -> list[str]:
    fewest = curve.points[0].workers
    share = f"{100 * LEAST_GAIN:.0f} % of what {'the first one' if fewest == 1 else f'each of {fewest}'} does"
    if curve.pays_off_to is None:
        return [
            f"mixed      step times of {' and '.join(curve.sources)}: not comparable, so no number of workers is"
            " marked; --simulate takes one source for all"
        ]
    if not curve.ends:
        most = f"up to {curve.pays_off_to} workers, the most that were asked for"
        return [f"pays off   {most}: each added one adds {share}, or more"]
    count = f"{curve.pays_off_to} worker{'' if curve.pays_off_to == 1 else 's'}"
    return [f"pays off   up to {count} (<): beyond, an added worker adds less than {share}"]
