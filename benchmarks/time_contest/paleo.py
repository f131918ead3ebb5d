"""An analytic model after Paleo (Qi, Sparks, Talwalkar, ICLR 2017): computing at a share of a peak, then communication.

    one rate:     step = c * FLOPs + link
    three rates:  step = c1 * FLOPs + c2 * bytes + c3 * link

`link` is the seconds that the busiest link needs for the tensors of a step, from the geometry of the setting. Paleo
knows the peak of a device and has a "platform percent of peak" from one run; here c is that number, fitted with the
least mean relative error to training jobs on the setting, or else on the machine. Three rates add the bytes that ops
write, and a share of the link's time that is not hidden behind computing.
"""

from __future__ import annotations

import numpy as np

from driple.inspector.data.array_types import FloatArray
from driple.inspector.time.time_rows import step_times
from time_contest.contestant import Predict, Rows
from time_contest.features import graph_totals
from time_contest.places import by_place
from time_contest.relative_lstsq import LEAST_S, relative_rates, seconds_by

LEAST = 3
"""Rows of a place for three rates."""


def best_rate(work: FloatArray, rest: FloatArray, seconds: FloatArray) -> float:
    """The c >= 0 with the least mean of |c * work + rest - seconds| / seconds: a weighted median of exact rates."""
    doing = work > 0
    if not doing.any():
        return 0.0
    exact = (seconds - rest)[doing] / work[doing]
    weight = work[doing] / seconds[doing]
    order = np.argsort(exact)
    reached = np.cumsum(weight[order])
    return max(float(exact[order][np.searchsorted(reached, reached[-1] / 2)]), 0.0)


def learn_one_rate(train: Rows, seed: int) -> Predict:
    """One number for each place."""

    def fit(rows: Rows) -> Predict:
        known = graph_totals(rows)
        rate = best_rate(known[:, 0], known[:, 3], step_times(rows))

        def predict(asked: Rows) -> FloatArray:
            totals = graph_totals(asked)
            return np.maximum(rate * totals[:, 0] + totals[:, 3], LEAST_S)

        return predict

    return by_place(fit, train)


def learn_three_rates(train: Rows, seed: int) -> Predict:
    """Three numbers for each place."""

    def amounts(rows: Rows) -> FloatArray:
        return graph_totals(rows)[:, [0, 1, 3]]

    def fit(rows: Rows) -> Predict:
        rates = relative_rates(amounts(rows), step_times(rows))
        return lambda asked: seconds_by(amounts(asked), rates)

    return by_place(fit, train, LEAST)
