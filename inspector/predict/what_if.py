"""Several predictions side by side: a table over settings, batch sizes and update modes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter

from driple.contracts.metrics import AMOUNT, BURST, GPU, NET_RX, NET_TX, burst_target
from driple.inspector.model.training_rows import workload_label
from driple.inspector.predict.novelty import FAR, LIKE
from driple.inspector.predict.number_format import NONE, figures, quantity
from driple.inspector.predict.prediction import Prediction
from driple.inspector.predict.prediction_text import (
    VERDICTS,
    aligned,
    inspector_line,
    processor_name,
    resource_name,
    role_name,
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
    """The table, and the inspectors behind it."""
    axes = varied(answers)
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
    found = [*warnings(abouts), f"{common_label(answers, axes, ', as a ')} sees it", ""]
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


def common_label(answers: Sequence[Prediction], axes: Sequence[str], before_role: str) -> str:
    """The part of workload, setting and role that all predictions share."""
    first = answers[0].query
    common = {name: value for name, value in first.workload.items() if name not in axes}
    where = "" if "setting" in axes else f" on {first.setting}"
    return f"{workload_label(common)}{where}{before_role}{role_name(answers[0].inspector.role)}"


def _cells(answer: Prediction) -> list[str]:
    targets = (burst_target(resource, metric) for resource in (GPU, NET_TX, NET_RX) for metric in (BURST, AMOUNT))
    cycle, rate, near, step = answer.cycle, answer.examples_per_s, answer.novelty, answer.step_time_s
    sure = cycle is not None and cycle.agreed and not answer.limited
    return [
        NONE if step is None else f"{'' if sure else '~'}{quantity(step, 's')}",
        NONE if rate is None else figures(rate),
        *(quantity(answer.value(target), target.unit) for target in targets),
        NONE if near is None else f"{near.verdict} ({near.distance:.2f})",
    ]


def _best(answers: Sequence[Prediction], axes: Sequence[str]) -> list[str]:
    rates = [(one.examples_per_s or math.nan, one) for one in answers if not one.limited]
    ranked = [(rate, one) for rate, one in rates if math.isfinite(rate)]
    if len(ranked) < 2:
        return []
    (most, best), (least, worst) = max(ranked, key=itemgetter(0)), min(ranked, key=itemgetter(0))
    name, other = (", ".join(f"{TITLES[axis]} {coordinate(one, axis)}" for axis in axes) for one in (best, worst))
    care = " (not like the training data)" if best.novelty is not None and best.novelty.verdict != LIKE else ""
    return [f"most       {figures(most)} examples/s with {name}{care}, {most / least:.1f} times {other}"]
