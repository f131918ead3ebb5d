"""TrainingPlan and JobEstimate: from the time of a step to epochs, the whole training, its cost and its limits.

    steps of an epoch = ceil(examples / (workers * batch size))     the steps of each worker, sync or async
    steps             = ceil(epochs * steps of an epoch)
    total time        = start-up + steps * step time
    cost              = total time * price of the cluster
    P(in time)        = P(step time <= (shortest limit - start-up) / steps)

A budget limits the time as well: budget / price. The uncertainty is that of the step time alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from driple.inspector.time.start_up import StartUp
    from driple.inspector.time.step_distribution import StepDistribution

HOUR_S = 3600.0


@dataclass(frozen=True, kw_only=True)
class Prices:
    """What a cluster costs in an hour, in the currency of the user."""

    by_setting: Mapping[str, float] = field(default_factory=dict)
    """Of the whole cluster."""
    per_worker_hour: float | None = None
    """Of each worker, where the setting has no price of its own. Servers cost nothing of their own."""

    def of(self, setting: str, workers: int) -> float | None:
        """Of the whole cluster; None if it is not known."""
        if setting in self.by_setting:
            return self.by_setting[setting]
        return None if self.per_worker_hour is None else self.per_worker_hour * workers


@dataclass(frozen=True, kw_only=True)
class TrainingPlan:
    """How long a job trains, and what limits it."""

    epochs: float
    examples: int
    """Of an epoch."""
    deadline_s: float | None = None
    budget: float | None = None
    start_up_s: float | None = None
    """As told; None: from measured runs."""
    prices: Prices = field(default_factory=Prices)

    @property
    def limited(self) -> bool:
        """Whether there is a deadline or a budget."""
        return self.deadline_s is not None or self.budget is not None


class Limit(NamedTuple):
    """The longest total time that a deadline or a budget leaves."""

    name: str
    """`deadline` or `budget`."""
    seconds: float


@dataclass(frozen=True, kw_only=True)
class JobEstimate:
    """Times and cost of a training job on one setting."""

    plan: TrainingPlan
    workers: int
    batch_size: int
    """Of a worker."""
    step_s: float
    distribution: StepDistribution | None = None
    """Of the step time; None: neither intervals nor probabilities."""
    start_up: StartUp | None = None
    """None if it is not known; then it is not counted."""
    price_per_hour: float | None = None
    """Of the whole cluster."""

    @property
    def examples_per_s(self) -> float:
        """Of all workers together, without start-up."""
        return self.workers * self.batch_size / self.step_s

    @property
    def steps_per_epoch(self) -> int:
        """Of each worker."""
        return -(-self.plan.examples // (self.workers * self.batch_size))

    @property
    def steps(self) -> int:
        """Of each worker."""
        return math.ceil(round(self.plan.epochs * self.steps_per_epoch, 9))  # 0.1 * 30 is more than 3

    @property
    def start_up_s(self) -> float:
        """0 if it is not known."""
        return 0.0 if self.start_up is None else self.start_up.seconds

    @property
    def epoch_s(self) -> float:
        """Without start-up."""
        return self.steps_per_epoch * self.step_s

    @property
    def total_s(self) -> float:
        return self.start_up_s + self.steps * self.step_s

    @property
    def epoch_cost(self) -> float | None:
        """Without start-up; None without a price."""
        return None if self.price_per_hour is None else self.epoch_s / HOUR_S * self.price_per_hour

    @property
    def cost(self) -> float | None:
        """None without a price."""
        return None if self.price_per_hour is None else self.total_s / HOUR_S * self.price_per_hour

    def ends(self, level: float) -> tuple[JobEstimate, JobEstimate] | None:
        """The estimates at both ends of the interval of the step time; None without a distribution."""
        if self.distribution is None:
            return None
        least, greatest = self.distribution.interval(level)
        return replace(self, step_s=least, distribution=None), replace(self, step_s=greatest, distribution=None)

    def interval(self, name: str, level: float) -> tuple[float, float] | None:
        """`step_s`, `epoch_s`, `total_s` or `cost` at both ends; None without a distribution or without the value."""
        ends = self.ends(level)
        if ends is None or getattr(self, name) is None:
            return None
        return getattr(ends[0], name), getattr(ends[1], name)

    @property
    def limits(self) -> tuple[Limit, ...]:
        """That of the deadline, then that of the budget."""
        found = []
        if self.plan.deadline_s is not None:
            found.append(Limit("deadline", self.plan.deadline_s))
        if self.plan.budget is not None and self.price_per_hour is not None:
            found.append(Limit("budget", self.plan.budget / self.price_per_hour * HOUR_S))
        return tuple(found)

    @property
    def missed(self) -> tuple[Limit, ...]:
        """The limits that the predicted total time exceeds."""
        return tuple(limit for limit in self.limits if self.total_s > limit.seconds)

    @property
    def meets(self) -> bool | None:
        """Whether the predicted total time is within all limits; None without a limit."""
        return not self.missed if self.limits else None

    @property
    def probability(self) -> float | None:
        """That all limits are met; None without a limit or without a distribution."""
        if not self.limits or self.distribution is None:
            return None
        left = min(limit.seconds for limit in self.limits) - self.start_up_s
        found = self.distribution.probability_within(left / self.steps)
        return None if math.isnan(found) else found
