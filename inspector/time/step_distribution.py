"""StepDistribution: a predicted step time with its uncertainty, from errors on workloads that were left out.

    P(step <= s) = share of the errors e_i with predicted * exp(e_i * widening) <= s

e_i = ln(measured / predicted) of workloads whose family the model had not seen (split conformal prediction). The
interval at level p leaves out (1 - p) / 2 of the errors at each end, with the correction for a finite number of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.9
"""Of intervals, if no other is asked for."""

ROUNDING = 1e-9
"""Of a product that is a whole number."""


@dataclass(frozen=True)
class StepDistribution:
    """Seconds of a training step."""

    seconds: float
    """The prediction."""
    errors: tuple[float, ...]
    """Sorted: ln(measured / predicted) of workloads that were left out."""
    widening: float = 1.0
    """Of errors: above 1 for a workload that is unlike the measured ones."""

    @classmethod
    def of(cls, seconds: float, errors: Sequence[float], widening: float = 1.0) -> StepDistribution:
        return cls(seconds, tuple(sorted(errors)), widening)

    def quantile(self, share: float) -> float:
        """The seconds that a step does not exceed with this probability, 0 to 1; infinite where errors are too few."""
        count = len(self.errors)
        # The finite-sample correction of conformal prediction, towards the nearer end.
        exact = (count + 1) * share
        rank = math.ceil(exact - ROUNDING) if share >= 0.5 else math.floor(exact + ROUNDING)
        if rank < 1:
            return 0.0
        if rank > count:
            return math.inf
        return self.seconds * math.exp(self.errors[rank - 1] * self.widening)

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Seconds at both ends of the interval that holds the step time with this probability."""
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def probability_within(self, seconds: float) -> float:
        """That a step takes at most so many seconds."""
        if not seconds > 0:
            return 0.0
        if not self.errors:
            return math.nan
        wanted = math.log(seconds / self.seconds) / self.widening
        return float(np.searchsorted(self.errors, wanted, side="right")) / len(self.errors)
