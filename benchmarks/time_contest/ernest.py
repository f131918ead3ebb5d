"""Ernest (Venkataraman et al., NSDI 2016), without runs of the job: one model for all jobs of a machine.

    seconds = t0 + t1 * scale / machines + t2 * log(machines) + t3 * machines        all t >= 0

`scale` is the examples of a step (batch size times workers), `machines` are servers and workers. Ernest's code
(github.com/amplab/ernest, predictor.py) fits it by non-negative least squares of absolute seconds, for one job on one
instance type. Here the fit is reused: to all training jobs on the machine, and from there to jobs that never ran. With
relative errors it is not ruled by the longest steps. `learn_pooled` has one fit for all machines.
"""

from __future__ import annotations

import numpy as np

from driple.inspector.data.array_types import FloatArray
from driple.inspector.time.time_rows import step_times
from time_contest.contestant import Predict, Rows
from time_contest.places import hosts
from time_contest.relative_lstsq import LEAST_S, relative_rates, seconds_by

LEAST = 4
"""Rows of a machine, else all machines: there are four numbers."""


def scale_of(rows: Rows) -> FloatArray:
    """[n]: examples in a step of the whole job."""
    return np.array([row.example.workload["batch_size"] * row.setting.workers for row in rows], dtype=np.float64)


def features(rows: Rows) -> FloatArray:
    """[n, 4]: 1, scale / machines, log machines, machines."""
    machines = np.array([hosts(row) for row in rows], dtype=np.float64)
    return np.stack([np.ones(len(rows)), scale_of(rows) / machines, np.log(machines), machines], axis=1)


def absolute_rates(rows: Rows) -> FloatArray:
    """[4]: as Ernest's code fits them."""
    from scipy.optimize import nnls

    return np.asarray(nnls(features(rows), step_times(rows))[0], dtype=np.float64)


def learn_absolute(train: Rows, seed: int) -> Predict:
    """As coded."""
    return _by_machine(train, relative=False)


def learn_relative(train: Rows, seed: int) -> Predict:
    """With relative errors."""
    return _by_machine(train, relative=True)


def learn_pooled(train: Rows, seed: int) -> Predict:
    """With relative errors, all machines together."""
    rates = relative_rates(features(train), step_times(train))
    return lambda rows: seconds_by(features(rows), rates)


def _by_machine(train: Rows, relative: bool) -> Predict:
    rates: dict[str, FloatArray] = {}

    def rates_of(machine: str) -> FloatArray:
        if machine not in rates:
            own = [row for row in train if row.machine == machine]
            own = own if len(own) >= LEAST else list(train)
            rates[machine] = relative_rates(features(own), step_times(own)) if relative else absolute_rates(own)
        return rates[machine]

    def predict(rows: Rows) -> FloatArray:
        found = np.stack([rates_of(row.machine) for row in rows]) if rows else np.zeros((0, 4))
        return np.maximum((features(rows) * found).sum(axis=1), LEAST_S)

    return predict
