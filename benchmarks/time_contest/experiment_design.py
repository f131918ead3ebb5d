"""Ernest's experiment design: the sample runs that tell most about its four numbers, within a budget.

A-optimal design (github.com/amplab/ernest, expt_design.py): with features x scaled by their means, choose runs that
minimise the trace of (sum x x')^-1, where the cost of a run is scale / machines and the budget limits their sum. Ernest
relaxes the choice to shares between 0 and 1. A job has few other runs here, so all sets of runs are compared instead.
Fewer runs than numbers would have no inverse: a small multiple of the identity is added.
"""

from __future__ import annotations

import itertools
from math import comb

import numpy as np

from driple.inspector.data.array_types import FloatArray

RIDGE = 1e-3
MOST_SETS = 20_000
"""Sets that are compared; of more candidates the first are taken, the cheapest first."""


def chosen_runs(features: FloatArray, cost: FloatArray, most: int) -> list[int]:
    """Positions of the best set of at most `most` runs, whose cost is at most that of `most` average runs.

    Args:
        features: [n, 4] of the candidates.
        cost: [n].
        most: runs.
    """
    order = np.argsort(cost, kind="stable")[: _most_candidates(most)]
    scaled = features[order] / np.maximum(features.mean(axis=0), 1e-12)
    products = scaled[:, :, None] * scaled[:, None, :]
    own_cost = cost[order]
    budget = most * cost.mean() * (1 + 1e-9)
    best: tuple[float, list[int]] = (np.inf, [])
    for size in range(1, min(most, len(order)) + 1):
        sets = np.array(list(itertools.combinations(range(len(order)), size)))
        sets = sets[own_cost[sets].sum(axis=1) <= budget]
        if len(sets):
            traces = np.trace(np.linalg.inv(products[sets].sum(axis=1) + RIDGE * np.eye(4)), axis1=1, axis2=2)
            place = int(traces.argmin())
            best = min(best, (float(traces[place]), sets[place].tolist()))
    return sorted(order[best[1]].tolist())


def _most_candidates(most: int) -> int:
    count = most
    while sum(comb(count + 1, size) for size in range(1, most + 1)) <= MOST_SETS:
        count += 1
    return count
