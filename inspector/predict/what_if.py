"""Several predictions side by side: a table over settings, batch sizes and update modes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import itemgetter

from driple.contracts.metrics import AMOUNT, BURST, GPU, NET_RX, NET_TX, burst_target
from driple.inspector.model.training_rows import workload_label
from driple.inspector.predict.novelty import FAR, LIKE
from driple.inspector.predict.number_format import NONE, figures, quantity
from driple.inspector.predict.prediction import TIME_MODEL, InspectorInfo, Prediction, SimulationInfo
from driple.inspector.predict.prediction_text import (
    VERDICTS,
    aligned,
    basis_line,
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
    abouts = list(dict.fromkeys(one.basis for one in answers))
    mixed = {about.provenance for about in abouts}
    processor = processor_name(answers)
    head = [
        *(TITLES[axis] for axis in axes),
        *("step time", "examples/s", f"{processor} burst", f"{processor} level"),
        *("TX burst", "TX level", "RX burst", "RX level", "training data"),
        *(["provenance"] if len(mixed) > 1 else []),
    ]
    rows = [head]
    for one in answers:
        kind = [one.provenance] if len(mixed) > 1 else []
        rows.append([*(coordinate(one, axis) for axis in axes), *_cells(one), *kind])
    known = [any(row[column] != NONE for row in rows[1:]) for column in range(len(head))]
    rows = [[cell for cell, shown in zip(row, known, strict=True) if shown] for row in rows]
    found = [*warnings(abouts), f"{common_label(answers, axes, ', as a ')} sees it", ""]
    found += [*aligned(rows, left=1), ""]
    found += _best(answers, axes) if len(mixed) == 1 else []
    for about in abouts:
        found.append(f"{basis_name(about)}  {basis_line(about)}")
    times = [(one.step_time, one.on_cpu) for one in answers]
    steps = dict.fromkeys(resource_name(time.resource, on_cpu) for time, on_cpu in times if time and time.resource)
    if steps:
        found.append(f"step time  burst + idle of {' or '.join(steps)}")
    told = sum(one.step is not None for one in answers)
    if told:
        which = "" if told == len(answers) else f" in {told} of {len(answers)} rows"
        found.append(f"step time  by the {TIME_MODEL}{which}")
    if any(_unsure(one) for one in answers):
        found.append("~          resources differ in burst + idle: take with care; a single prediction shows them")
    if any(map(_limited, answers)):
        found.append("~          also at the upper limit of predictions: a step may take longer; not ranked")
    far = [one for one in answers if one.novelty is not None and one.novelty.verdict == FAR]
    if far:
        found.append(f"far        {len(far)} of {len(answers)} lie {VERDICTS[FAR]}; ask for one alone to see why")
    found += [f"{'graph':<10} {note}" for note in dict.fromkeys(note for one in answers for note in one.graph_notes)]
    unseen = dict.fromkeys(one.novelty.framework_line for one in answers if one.novelty is not None)
    found += [f"{'framework':<10} {line}" for line in unseen if line is not None]
    if len(mixed) > 1:
        found.append(
            f"mixed      {' and '.join(sorted(mixed))} answers side by side: not ranked, the difference may be theirs"
        )
    return found


def common_label(answers: Sequence[Prediction], axes: Sequence[str], before_role: str) -> str:
    """The part of workload, setting and role that all predictions share."""
    first = answers[0].query
    common = {name: value for name, value in first.workload.items() if name not in axes}
    where = "" if "setting" in axes else f" on {first.setting}"
    return f"{workload_label(common)}{where}{before_role}{role_name(answers[0].role)}"


def basis_name(about: InspectorInfo | SimulationInfo) -> str:
    """`inspector` or `simulator`."""
    return "simulator" if isinstance(about, SimulationInfo) else "inspector"


def _unsure(answer: Prediction) -> bool:
    """Whether the resources contradict each other about the step time, and nothing else tells it."""
    told = answer.step is not None or answer.simulation is not None
    return not told and answer.cycle is not None and not answer.cycle.agreed


def _limited(answer: Prediction) -> bool:
    """Whether the step time may be at the upper limit of predictions."""
    return bool(answer.limited) and answer.step is None


def _cells(answer: Prediction) -> list[str]:
    targets = (burst_target(resource, metric) for resource in (GPU, NET_TX, NET_RX) for metric in (BURST, AMOUNT))
    rate, near, step = answer.examples_per_s, answer.novelty, answer.step_time_s
    known = answer.cycle is not None or answer.step is not None
    sure = known and not _unsure(answer) and not _limited(answer)
    return [
        NONE if step is None else f"{'' if sure else '~'}{quantity(step, 's')}",
        NONE if rate is None else figures(rate),
        *(quantity(answer.value(target), target.unit) for target in targets),
        NONE if near is None else f"{near.verdict} ({near.distance:.2f})",
    ]


def _best(answers: Sequence[Prediction], axes: Sequence[str]) -> list[str]:
    rates = [(one.examples_per_s or math.nan, one) for one in answers if not _limited(one)]
    ranked = [(rate, one) for rate, one in rates if math.isfinite(rate)]
    if len(ranked) < 2:
        return []
    (most, best), (least, worst) = max(ranked, key=itemgetter(0)), min(ranked, key=itemgetter(0))
    name, other = (", ".join(f"{TITLES[axis]} {coordinate(one, axis)}" for axis in axes) for one in (best, worst))
    care = " (not like the training data)" if best.novelty is not None and best.novelty.verdict != LIKE else ""
    return [f"most       {figures(most)} examples/s with {name}{care}, {most / least:.1f} times {other}"]
