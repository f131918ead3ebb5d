"""CherryPick's search (Alipourfard et al., NSDI 2017): how many runs it needs to find a cheap configuration of a job.

A configuration is a batch size on a place; its cost is machine seconds per example, hosts * step / examples of a step.
The search starts with three configurations drawn at random, fits its Gaussian process to the logarithm of the costs,
and runs the configuration with the greatest expected improvement until that is below 10 % of the best cost so far. The
publication also demands six runs; few jobs here have many more configurations than that, so this rule is left out,
which makes the search cheaper.

Beside it: choosing by predictions without any run, and choosing at random. `regret` is the cost of the choice over the
least cost of all configurations, less 1.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from math import erf, exp, pi, sqrt
from typing import NamedTuple

import numpy as np

from driple.inspector.data.array_types import FloatArray
from driple.inspector.time.time_rows import TimeRow, step_times
from time_contest.cherrypick import configurations, fitted_process
from time_contest.ernest import scale_of
from time_contest.job_runs import job_of, machine_seconds
from time_contest.places import hosts

STARTS = 3
STOP = 0.1
LEAST_CONFIGURATIONS = 5


class Search(NamedTuple):
    """Means over jobs."""

    jobs: int
    configurations: float
    runs: float
    machine_s: float
    regret_pct: float
    by_prediction_pct: float
    """Regret of the configuration with the least predicted cost."""
    at_random_pct: float
    """Mean regret of all configurations."""


def costs(rows: Sequence[TimeRow], seconds: FloatArray) -> FloatArray:
    """[n] machine seconds per example, if a step takes `seconds`."""
    return np.array([hosts(row) for row in rows], dtype=np.float64) * seconds / scale_of(rows)


def search_jobs(rows: Sequence[TimeRow], predicted: FloatArray, seed: int = 0) -> Search | None:
    """Searches for every job with enough configurations; None if there is none.

    Args:
        rows: measured.
        predicted: [n] seconds of each row, by a predictor that has not seen its family.
        seed: of the first runs.
    """
    jobs: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for number, row in enumerate(rows):
        jobs[job_of(row)].append(number)
    found = []
    for own in jobs.values():
        if len(own) >= LEAST_CONFIGURATIONS:
            mine = [rows[number] for number in own]
            cost = costs(mine, step_times(mine))
            tried = search(configurations(mine), cost, seed)
            regret = 100 * (cost / cost.min() - 1)
            best = tried[int(cost[tried].argmin())]
            told = int(costs(mine, predicted[own]).argmin())
            spent = machine_seconds(mine[place] for place in tried)
            found.append((len(own), len(tried), spent, regret[best], regret[told], regret.mean()))
    return (
        Search(len(found), *(float(statistics.mean(column)) for column in zip(*found, strict=True))) if found else None
    )


def search(configuration: FloatArray, cost: FloatArray, seed: int = 0) -> list[int]:
    """Positions of the configurations that are run, in their order."""
    tried: list[int] = np.random.default_rng(seed).permutation(len(cost))[:STARTS].tolist()
    while len(tried) < len(cost):
        process = fitted_process(configuration[tried], np.log(cost[tried]))
        left = [place for place in range(len(cost)) if place not in tried]
        mean, deviation = process.predict(configuration[left], return_std=True)
        least = float(np.log(cost[tried].min()))
        gains = [expected_improvement(least, *pair) for pair in zip(mean.tolist(), deviation.tolist(), strict=True)]
        if max(gains) < STOP:
            break
        tried.append(left[int(np.argmax(gains))])
    return [int(place) for place in tried]


def expected_improvement(least: float, mean: float, deviation: float) -> float:
    """Expected value of max(least - x, 0) for a normal x. Of logarithms: about the share of the cost that is saved."""
    if deviation <= 0:
        return max(least - mean, 0.0)
    z = (least - mean) / deviation
    return (least - mean) * (1 + erf(z / sqrt(2))) / 2 + deviation * exp(-z * z / 2) / sqrt(2 * pi)
