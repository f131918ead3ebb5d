"""CherryPick's search (Alipourfard et al., NSDI 2017): how many runs it needs to find a cheap configuration of a job.

A configuration is a batch size on a place; its cost is machine seconds per example, hosts * step / examples of a step.
The search starts with three configurations drawn at random, fits its Gaussian process to the logarithm of the costs,
and runs the configuration with the greatest expected improvement until that is below 10 % of the best cost so far and,
as published, six were run. Few jobs here have many more configurations than six, so the search is also shown without
that rule.

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
PUBLISHED_RUNS = 6
LEAST_CONFIGURATIONS = 7


class Way(NamedTuple):
    """A way to choose a configuration: means over jobs."""

    title: str
    runs: float
    machine_s: float
    regret_pct: float


class Search(NamedTuple):
    """All ways, on the same jobs."""

    jobs: int
    configurations: float
    ways: tuple[Way, ...]


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
    tried: dict[str, list[tuple[int, float, float]]] = defaultdict(list)
    sizes = []
    for own in jobs.values():
        if len(own) < LEAST_CONFIGURATIONS:
            continue
        mine = [rows[number] for number in own]
        cost = costs(mine, step_times(mine))
        regret = 100 * (cost / cost.min() - 1)
        sizes.append(len(own))
        for title, least in (("CherryPick, stops below 10 %", 0), ("CherryPick, and after six runs", PUBLISHED_RUNS)):
            runs = search(configurations(mine), cost, least, seed)
            spent = machine_seconds(mine[place] for place in runs)
            tried[title].append((len(runs), spent, float(regret[runs].min())))
        told = int(costs(mine, predicted[own]).argmin())
        tried["ours, family never seen"].append((0, 0.0, float(regret[told])))
        tried["at random"].append((0, 0.0, float(regret.mean())))
    if not sizes:
        return None
    ways = tuple(Way(title, *map(statistics.mean, zip(*found, strict=True))) for title, found in tried.items())
    return Search(len(sizes), statistics.mean(sizes), ways)


def search(configuration: FloatArray, cost: FloatArray, least_runs: int = 0, seed: int = 0) -> list[int]:
    """Positions of the configurations that are run, in their order; at least so many."""
    tried: list[int] = np.random.default_rng(seed).permutation(len(cost))[:STARTS].tolist()
    while len(tried) < len(cost):
        process = fitted_process(configuration[tried], np.log(cost[tried]))
        left = [place for place in range(len(cost)) if place not in tried]
        mean, deviation = process.predict(configuration[left], return_std=True)
        least = float(np.log(cost[tried].min()))
        gains = [expected_improvement(least, *pair) for pair in zip(mean.tolist(), deviation.tolist(), strict=True)]
        if max(gains) < STOP and len(tried) >= least_runs:
            break
        tried.append(left[int(np.argmax(gains))])
    return [int(place) for place in tried]


def expected_improvement(least: float, mean: float, deviation: float) -> float:
    """Expected value of max(least - x, 0) for a normal x. Of logarithms: about the share of the cost that is saved."""
    if deviation <= 0:
        return max(least - mean, 0.0)
    z = (least - mean) / deviation
    return (least - mean) * (1 + erf(z / sqrt(2))) / 2 + deviation * exp(-z * z / 2) / sqrt(2 * pi)
