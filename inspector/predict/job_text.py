"""The training job of predictions as text: lines for one, a ranked table for several."""

from __future__ import annotations

from collections.abc import Sequence

from driple.inspector.predict.job_answer import ranked, reasons
from driple.inspector.predict.number_format import NONE, figures, quantity, span
from driple.inspector.predict.prediction import Prediction
from driple.inspector.predict.prediction_text import aligned
from driple.inspector.predict.what_if import TITLES, coordinate, varied
from driple.inspector.time.step_distribution import LEVEL
from driple.inspector.time.training_plan import JobEstimate, TrainingPlan

NO_PROBABILITY = "neither intervals nor probabilities: the step time is not from the time model"
NO_START_UP = "not known and not counted: no measured runs tell it (--datasets); --start-up 30s does"
NO_STEP = "no step time, so neither a total time nor a cost"
SURE = 0.995


def one(answer: Prediction) -> list[str]:
    """The lines for a single answer; empty without a plan."""
    job = answer.job
    if job is None:
        return []
    batch = f"{job.workers} x {job.batch_size}" if job.workers > 1 else f"{job.batch_size}"
    found = [
        f"{'job':<13} {plan_line(job.plan)}: {job.steps_per_epoch} steps of {batch} examples an epoch, "
        f"{job.steps} in all",
        f"{'epoch time':<13} {quantity(job.epoch_s, 'time')}{_of(job, 'epoch_s', 'time')}",
        f"{'total time':<13} {quantity(job.total_s, 'time')}{_of(job, 'total_s', 'time')}",
    ]
    if job.cost is not None:
        found.append(f"{'cost':<13} {figures(job.cost)}{_of(job, 'cost', '')} at {job.price_per_hour:g} an hour")
    found += [f"{'limits':<13} {limits_line(job.plan)}: {_verdict(job)}"] if job.limits else []
    return [*found, *_notes([answer])]


def table(answers: Sequence[Prediction]) -> list[str]:
    """The jobs of several answers, ranked if there is a deadline or a budget; empty without a plan."""
    plans = [answer.job.plan for answer in answers if answer.job is not None]
    if not plans:
        return []
    plan, axes = plans[0], varied(answers)
    ordered = ranked(answers) if plan.limited else [answer for answer in answers if answer.job is not None]
    head = ["rank", *(TITLES[axis] for axis in axes), "epoch time", "total time", f"{100 * LEVEL:.0f} % interval"]
    rows, why = [[*head, "cost", "probability"]], ["why not"]
    for place, answer in enumerate(ordered):
        job = answer.job
        assert job is not None
        ends = job.interval("total_s", LEVEL)
        rows.append(
            [
                str(place + 1) if job.meets else NONE,
                *(coordinate(answer, axis) for axis in axes),
                *(quantity(job.epoch_s, "time"), quantity(job.total_s, "time")),
                NONE if ends is None else span(ends, "time"),
                NONE if job.cost is None else figures(job.cost),
                NONE if job.probability is None else percent(job.probability),
            ]
        )
        why.append(", ".join(reasons(job)))
    known = [any(row[column] != NONE for row in rows[1:]) for column in range(len(rows[0]))]
    rows = [[cell for cell, shown in zip(row, known, strict=True) if shown] for row in rows]
    shown = aligned(rows, left=sum(name in ("rank", TITLES["setting"]) for name in rows[0]))
    if any(why[1:]):
        width = max(map(len, shown))
        shown = [f"{line:<{width}}  {reason}".rstrip() for line, reason in zip(shown, why, strict=True)]
    title = f"{plan_line(plan)}, {limits_line(plan)}" if plan.limited else plan_line(plan)
    return ["", f"job: {title}", "", *shown, "", *(_order(ordered) if plan.limited else []), *_notes(answers)]


def plan_line(plan: TrainingPlan) -> str:
    """`90 epochs of 50000 examples`."""
    return f"{plan.epochs:g} epoch{'' if plan.epochs == 1 else 's'} of {plan.examples} examples"


def limits_line(plan: TrainingPlan) -> str:
    """`deadline 8.00 h, budget 50`."""
    found = [] if plan.deadline_s is None else [f"deadline {quantity(plan.deadline_s, 'time')}"]
    return ", ".join(found + ([] if plan.budget is None else [f"budget {plan.budget:g}"]))


def percent(probability: float) -> str:
    """A probability. The errors behind it are too few to tell certainty."""
    if probability >= SURE:
        return "> 99 %"
    return "< 1 %" if probability < 1 - SURE else f"{100 * probability:.0f} %"


def _of(job: JobEstimate, name: str, unit: str) -> str:
    ends = job.interval(name, LEVEL)
    return "" if ends is None else f" ({span(ends, unit)} with {100 * LEVEL:.0f} %)"


def _verdict(job: JobEstimate) -> str:
    found = "met" if job.meets else f"not met, {', '.join(reasons(job))}"
    them = "it" if len(job.limits) == 1 else "both"
    return found if job.probability is None else f"{found}; probability to meet {them} {percent(job.probability)}"


def _order(ordered: Sequence[Prediction]) -> list[str]:
    by = ["cost"] if any(one.job is not None and one.job.cost is not None for one in ordered) else []
    known = any(one.job is not None and one.job.probability is not None for one in ordered)
    by = [*(["probability in whole percent"] if known else []), *by, "total time"]
    found = [f"{'rank':<13} by {', then '.join(by)}; without a rank: the predicted total exceeds a limit"]
    kinds = sorted({one.provenance for one in ordered if one.step is None})
    if len(kinds) > 1:
        found.append(f"{'rank':<13} over {' and '.join(kinds)} answers: a small difference may be theirs")
    return found


def _notes(answers: Sequence[Prediction]) -> list[str]:
    """Where start-up times come from, and what is not known."""
    found: dict[str, None] = {}
    for answer in answers:
        job = answer.job
        if job is None:
            found[f"{'job':<13} {answer.setting}: {NO_STEP}"] = None
        elif job.start_up is None:
            found[f"{'start-up':<13} {NO_START_UP}"] = None
        else:
            found[f"{'start-up':<13} {quantity(job.start_up.seconds, 'time')}, {job.start_up.source}"] = None
    without = [answer for answer in answers if answer.job is not None and answer.job.distribution is None]
    if without:
        which = "" if len(without) == len(answers) else f"of {len(without)} of {len(answers)} "
        found[f"{'probability':<13} {which}{NO_PROBABILITY}"] = None
    return list(found)
