"""The training job of predictions: estimates from their step times, a ranking by deadline and budget, JSON values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from driple.contracts.errors import BadInput
from driple.inspector.time.start_up import StartRow, StartUp, read_start_rows, start_up_law
from driple.inspector.time.step_distribution import LEVEL
from driple.inspector.time.training_plan import JobEstimate, TrainingPlan

if TYPE_CHECKING:
    from driple.inspector.predict.prediction import Prediction

TOLD = "as told"
VALUES = ("step_s", "epoch_s", "total_s", "cost")
"""Those that have an interval."""
LATE = "start-up alone takes longer"


def with_jobs(answers: Sequence[Prediction], plan: TrainingPlan, datasets: Path) -> list[Prediction]:
    """Predictions with the estimate of their job.

    Args:
        answers: predictions of workers.
        plan: what is trained.
        datasets: the folder whose measured runs tell the start-up, if the plan does not.

    Raises:
        BadInput: the batch size of a graph is not known.
    """
    rows = () if plan.start_up_s is not None else read_start_rows(datasets)
    return [replace(one, job=_estimate(one, plan, rows)) for one in answers]


def _estimate(answer: Prediction, plan: TrainingPlan, rows: Sequence[StartRow]) -> JobEstimate | None:
    batch = answer.query.workload.get("batch_size")
    if batch is None:
        raise BadInput("--epochs: the graph does not tell how many examples a step has; give --batch-size")
    step_s, setting = answer.step_time_s, answer.query.setting
    if not step_s:
        return None
    return JobEstimate(
        plan=plan,
        workers=setting.workers,
        batch_size=batch,
        step_s=step_s,
        distribution=answer.step,
        start_up=_start_up(answer, plan, rows),
        price_per_hour=plan.prices.of(str(setting), setting.workers),
    )


def _start_up(answer: Prediction, plan: TrainingPlan, rows: Sequence[StartRow]) -> StartUp | None:
    if plan.start_up_s is not None:
        return StartUp(plan.start_up_s, TOLD)
    law = start_up_law(rows, answer.setting, answer.framework)
    return None if law is None else law.of(answer.ops)


def ranked(answers: Sequence[Prediction]) -> list[Prediction]:
    """Those that meet deadline and budget, best first, then the others.

    Best is the highest probability in whole percent, then the lowest cost, then the shortest time. Those without a
    probability come after those that have one.
    """
    return sorted((one for one in answers if one.job is not None and one.job.limits), key=_rank)


def _rank(answer: Prediction) -> tuple[float, ...]:
    job = answer.job
    assert job is not None
    sure = -1.0 if job.probability is None else round(job.probability, 2)
    cost = math.inf if job.cost is None else job.cost
    return (not job.meets, -sure, cost, job.total_s)


def reasons(job: JobEstimate) -> list[str]:
    """Why the job does not meet its limits, in the words of a table; empty if it does."""
    from driple.inspector.predict.number_format import figures, quantity

    found = []
    for limit in job.missed:
        if job.start_up_s >= limit.seconds:
            found.append(f"{limit.name}: {LATE}")
        elif limit.name == "deadline":
            found.append(f"{quantity(job.total_s - limit.seconds, 'time')} late")
        elif job.cost is not None and job.plan.budget is not None:
            found.append(f"{figures(job.cost - job.plan.budget)} over the budget")
    return found


def columns(job: JobEstimate) -> dict[str, Any]:
    """The main values, for a row of a table."""
    found: dict[str, Any] = {"steps": job.steps, "epoch_s": job.epoch_s, "total_s": job.total_s, "cost": job.cost}
    for name in VALUES:
        ends = job.interval(name, LEVEL)
        found |= {f"{name}_{end}": None if ends is None else _finite(ends[place]) for place, end in enumerate(_ENDS)}
    return {**found, "meets": job.meets, "probability": job.probability}


_ENDS = ("least", "greatest")


def to_json(job: JobEstimate) -> dict[str, Any]:
    """As JSON values, in seconds and in the currency of the price; null where unknown."""
    ends = {name: job.interval(name, LEVEL) for name in VALUES}
    interval = {name: None if pair is None else list(map(_finite, pair)) for name, pair in ends.items()}
    return {
        **{"epochs": job.plan.epochs, "examples": job.plan.examples},
        **{"steps_per_epoch": job.steps_per_epoch, "steps": job.steps, "examples_per_s": job.examples_per_s},
        **{"step_s": job.step_s, "epoch_s": job.epoch_s, "total_s": job.total_s},
        "start_up_s": None if job.start_up is None else job.start_up.seconds,
        "start_up_from": None if job.start_up is None else job.start_up.source,
        **{"price_per_hour": job.price_per_hour, "epoch_cost": job.epoch_cost, "cost": job.cost},
        "interval": None if job.distribution is None else {"level": LEVEL, **interval},
        **{"deadline_s": job.plan.deadline_s, "budget": job.plan.budget},
        **{"meets": job.meets, "probability": job.probability, "reasons": reasons(job)},
    }


def ranking_json(answers: Sequence[Prediction]) -> list[dict[str, Any]]:
    """The ranking as JSON values; `prediction` is the place in the list of predictions, from 0.

    Those that do not meet their limits come last and have no rank.
    """
    found = []
    for place, one in enumerate(ranked(answers)):
        job = one.job
        assert job is not None
        found.append(
            {
                **{
                    "rank": place + 1 if job.meets else None,
                    "prediction": _place(answers, one),
                    "setting": one.setting,
                },
                **{name: one.query.workload.get(name) for name in ("batch_size", "update")},
                **{"meets": job.meets, "probability": job.probability, "reasons": reasons(job)},
                **{"total_s": job.total_s, "cost": job.cost},
            }
        )
    return found


def _place(answers: Sequence[Prediction], wanted: Prediction) -> int:
    return next(place for place, one in enumerate(answers) if one is wanted)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
