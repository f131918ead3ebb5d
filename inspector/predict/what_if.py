"""Several answers side by side: what another device, another number of servers and workers, or another batch does."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from driple.contracts.metrics import AMOUNT, BURST, GPU, NET_RX, NET_TX, Resource, burst_target
from driple.inspector.model.training_rows import workload_label
from driple.inspector.predict.novelty import FAR, LIKE
from driple.inspector.predict.number_format import NONE, figures, of_target, quantity
from driple.inspector.predict.prediction import Prediction
from driple.inspector.predict.prediction_text import (
    VERDICTS,
    aligned,
    inspector_line,
    processor_name,
    resource_name,
    warnings,
)

AXES = ("setting", "batch_size", "update")
TITLES = {"setting": "setting", "batch_size": "batch", "update": "update"}


def varied(answers: Sequence[Prediction]) -> list[str]:
    """Which of setting, batch size and update mode differ."""
    return [axis for axis in AXES if len({coordinate(one, axis) for one in answers}) > 1]


def coordinate(answer: Prediction, axis: str) -> str:
    """Its setting, batch size or update mode."""
    if axis == "setting":
        return str(answer.query.setting)
    found = answer.query.workload.get(axis)
    return NONE if found is None else str(found)


def lines(answers: Sequence[Prediction]) -> list[str]:
    """The table, and what it rests on."""
    axes = varied(answers)
    common = dict(answers[0].query.workload)
    for axis in axes:
        common.pop(axis, None)
    first = answers[0].query
    where = "" if "setting" in axes else f" on {first.setting}"
    processor = processor_name([one.query.setting for one in answers])
    head = [
        *(TITLES[axis] for axis in axes),
        *("step time", "examples/s", f"{processor} burst", f"{processor} level"),
        *("TX burst", "TX level", "RX burst", "RX level", "training data"),
    ]
    rows = [head, *([*(coordinate(one, axis) for axis in axes), *_cells(one)] for one in answers)]
    known = [any(row[column] != NONE for row in rows[1:]) for column in range(len(head))]
    rows = [[cell for cell, shown in zip(row, known, strict=True) if shown] for row in rows]
    abouts = list(dict.fromkeys(one.inspector for one in answers))
    found = [*warnings(abouts), f"{workload_label(common)}{where}, as a {first_role(answers)} sees it", ""]
    found += [*aligned(rows, left=1), ""]
    found += _best(answers, axes)
    found += [f"inspector  {inspector_line(about)}" for about in abouts]
    steps = dict.fromkeys(resource_name(one.step_time.resource, one.query.setting) for one in answers if one.step_time)
    if steps:
        found.append(f"step time  burst + idle of {' or '.join(steps)}")
    if any(one.cycle is not None and not one.cycle.agreed for one in answers):
        found.append("~          resources differ in burst + idle: take with care; a single prediction shows them")
    if any(one.limited for one in answers):
        found.append("~          also at the upper limit of predictions: a step may take longer; not ranked")
    far = [one for one in answers if one.novelty is not None and one.novelty.verdict == FAR]
    if far:
        found.append(f"far        {len(far)} of {len(answers)} lie {VERDICTS[FAR]}; ask for one alone to see why")
    mixed = {about.provenance for about in abouts}
    if len(mixed) > 1:
        found.append(
            f"mixed      {' and '.join(sorted(mixed))} inspectors side by side: their difference may be theirs"
        )
    return found


def first_role(answers: Sequence[Prediction]) -> str:
    """Of the answers, which have one."""
    return "parameter server" if answers[0].inspector.role == "ps" else "worker"


def _cells(answer: Prediction) -> list[str]:
    def cell(resource: Resource, metric: str) -> str:
        target = burst_target(resource, BURST if metric == "burst" else AMOUNT)
        return of_target(target, answer.value(target))

    cycle, rate, near, step = answer.cycle, answer.examples_per_s, answer.novelty, answer.step_time_s
    sure = cycle is not None and cycle.agreed and not answer.limited
    return [
        NONE if step is None else f"{'' if sure else '~'}{quantity(step, 's')}",
        NONE if rate is None else figures(rate),
        *(cell(resource, metric) for resource in (GPU, NET_TX, NET_RX) for metric in ("burst", "level")),
        NONE if near is None else f"{near.verdict} ({near.distance:.2f})",
    ]


@dataclass(frozen=True)
class _Ranked:
    answer: Prediction
    rate: float


def _best(answers: Sequence[Prediction], axes: Sequence[str]) -> list[str]:
    ranked = [_Ranked(one, one.examples_per_s) for one in answers if one.examples_per_s is not None and not one.limited]
    ranked = [one for one in ranked if math.isfinite(one.rate)]
    if len(ranked) < 2:
        return []
    best, worst = max(ranked, key=lambda one: one.rate), min(ranked, key=lambda one: one.rate)
    name = ", ".join(f"{TITLES[axis]} {coordinate(best.answer, axis)}" for axis in axes)
    other = ", ".join(f"{TITLES[axis]} {coordinate(worst.answer, axis)}" for axis in axes)
    strange = best.answer.novelty is not None and best.answer.novelty.verdict != LIKE
    care = " (not like the training data)" * strange
    return [f"most       {figures(best.rate)} examples/s with {name}{care}, {best.rate / worst.rate:.1f} times {other}"]
