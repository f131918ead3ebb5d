"""Checks the arguments of a training plan: epochs, examples, prices, limits, numbers of workers."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from driple.contracts.errors import BadInput, shown
from driple.contracts.quantity import DURATION, ExpectedError, quantity
from driple.contracts.setting import MAX_TASKS_OF_A_ROLE, Setting
from driple.contracts.strategy import WORKER
from driple.inspector.time.training_plan import Prices, TrainingPlan

PLAN_OPTIONS = ("epochs", "examples", "price_per_hour", "price_per_worker_hour", "deadline", "budget", "start_up")
MOST_EXAMPLES = 10**12


def plan_of(
    settings: Sequence[Setting],
    role: str,
    *,
    workers: Sequence[int] = (),
    epochs: float | None = None,
    examples: int | None = None,
    price_per_hour: float | Sequence[float] | Mapping[str, float] | None = None,
    price_per_worker_hour: float | None = None,
    deadline: str | float | None = None,
    budget: float | None = None,
    start_up: str | float | None = None,
) -> TrainingPlan | None:
    """The plan that the arguments describe; None without any.

    Args:
        settings: as named by the user, without those that `workers` adds.
        role: whose metrics are predicted.
        workers: the numbers of workers of a scaling curve; empty without one.
        epochs: passes over the examples; a fraction is possible.
        examples: of an epoch.
        price_per_hour: of the whole cluster: one for all settings, one for each in their order, or by setting.
        price_per_worker_hour: of each worker.
        deadline: the total time that is available: `8h`, or seconds.
        budget: the money that is available.
        start_up: the time besides the steps: `30s`, or seconds.

    Raises:
        BadInput: a value is wrong, or its partner is missing.
    """
    given = {"price_per_hour": price_per_hour, "price_per_worker_hour": price_per_worker_hour, "deadline": deadline}
    given |= {"budget": budget, "start_up": start_up}
    if epochs is None and examples is None:
        for name, value in given.items():
            if value is not None:
                raise BadInput(f"{_option(name)} needs --epochs and --examples: how long the job trains")
        return None
    if epochs is None:
        raise BadInput("--examples needs --epochs: how often the job passes over them")
    if examples is None:
        raise BadInput("--epochs needs --examples: how many there are in an epoch")
    if role != WORKER:
        raise BadInput(f"--epochs: the cycle of role {role} is not a training step; leave --role out")
    if price_per_hour is not None and price_per_worker_hour is not None:
        raise BadInput("--price-per-hour and --price-per-worker-hour: give one of them")
    if budget is not None and price_per_hour is None and price_per_worker_hour is None:
        raise BadInput("--budget needs a price: --price-per-hour or --price-per-worker-hour")
    plan = TrainingPlan(
        epochs=_positive("epochs", epochs),
        examples=_examples(examples),
        deadline_s=None if deadline is None else _duration("deadline", deadline),
        budget=None if budget is None else _positive("budget", budget),
        start_up_s=None if start_up is None else _duration("start_up", start_up, zero=True),
        prices=Prices(
            by_setting=_prices(price_per_hour, settings, workers),
            per_worker_hour=None
            if price_per_worker_hour is None
            else _positive("price_per_worker_hour", price_per_worker_hour),
        ),
    )
    if plan.deadline_s is not None and plan.start_up_s is not None and plan.deadline_s <= plan.start_up_s:
        raise BadInput(
            f"--deadline {shown(deadline)} leaves no time for training after --start-up {shown(start_up)}; give a"
            " longer one"
        )
    return plan


def worker_counts(value: Any) -> tuple[int, ...]:
    """The numbers of workers of a scaling curve in ascending order, each once; empty without one.

    Raises:
        BadInput: fewer than two, or one that is not possible.
    """
    if value is None:
        return ()
    try:
        given = (value,) if isinstance(value, str | numbers.Number) else tuple(value)
    except TypeError:
        raise BadInput(f"--workers: expected whole numbers, got {shown(value)}") from None
    for one in given:
        whole = isinstance(one, numbers.Integral) and not isinstance(one, bool)
        if not whole or not 1 <= one <= MAX_TASKS_OF_A_ROLE:
            raise BadInput(f"--workers: expected whole numbers from 1 to {MAX_TASKS_OF_A_ROLE}, got {shown(one)}")
    found = tuple(sorted({int(one) for one in given}))
    if len(found) < 2:
        raise BadInput("--workers: a scaling curve needs two numbers or more, such as 1 2 4 8 or 1-8")
    return found


def with_workers(settings: Sequence[Setting], workers: Sequence[int]) -> tuple[Setting, ...]:
    """Every setting with each number of workers, without duplicates; the settings themselves without numbers."""
    if not workers:
        return tuple(settings)
    return tuple(dict.fromkeys(replace(setting, workers=count) for setting in settings for count in workers))


def _prices(value: Any, settings: Sequence[Setting], workers: Sequence[int]) -> dict[str, float]:
    """Price of the cluster by setting."""
    if value is None:
        return {}
    if isinstance(value, Mapping):
        found = {str(Setting.parse(name)): _positive("price_per_hour", price) for name, price in value.items()}
        wanted = [str(setting) for setting in with_workers(settings, workers)]
        for name in found:
            if name not in wanted:
                raise BadInput(f"--price-per-hour {name}=...: not a setting of this prediction ({', '.join(wanted)})")
        lacking = [name for name in wanted if name not in found]
        if lacking:
            raise BadInput(f"--price-per-hour: no price of {', '.join(lacking)}; give one of each setting")
        return found
    if workers:
        raise BadInput(
            "--price-per-hour is of one cluster, and --workers makes several: give --price-per-worker-hour, or a price"
            " of each, SETTING=PRICE"
        )
    single = not isinstance(value, Sequence) or isinstance(value, str)
    prices = [_positive("price_per_hour", one) for one in ([value] if single else value)]
    if len(prices) == 1:
        prices *= len(settings)
    if len(prices) != len(settings):
        raise BadInput(
            f"--price-per-hour: {len(prices)} prices for {len(settings)} settings; give one for all, or one of each"
        )
    return {str(setting): price for setting, price in zip(settings, prices, strict=True)}


def _examples(value: Any) -> int:
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not whole or not 1 <= value <= MOST_EXAMPLES:
        raise BadInput(f"--examples: expected a whole number from 1 to 10^12, got {shown(value)}")
    return int(value)


def _positive(name: str, value: Any) -> float:
    number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not number or not (0 < value < math.inf):
        raise BadInput(f"{_option(name)}: expected a number above 0, got {shown(value)}")
    return float(value)


def _duration(name: str, value: Any, *, zero: bool = False) -> float:
    """Seconds of a text with its unit, or of a number of seconds."""
    try:
        seconds = quantity(DURATION, value) if isinstance(value, str) else value
    except ExpectedError as error:
        raise BadInput(f"{_option(name)}: expected {error}, got {shown(value)}") from None
    number = isinstance(seconds, numbers.Real) and not isinstance(seconds, bool)
    if not number or not (0 < seconds < math.inf or (zero and seconds == 0)):
        least = "of 0 or more" if zero else "above 0"
        raise BadInput(f"{_option(name)}: expected a duration {least} with its unit, such as '8h', got {shown(value)}")
    return float(seconds)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
