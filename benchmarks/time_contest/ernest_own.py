"""Ernest with sample runs of the very job: up to five other runs, with other batch sizes or on other settings.

The fit is that of ernest.py, as coded: absolute seconds. `learn` belongs to both ways to choose the runs: at random, or
by Ernest's experiment design (experiment_design.py).
"""

from __future__ import annotations

import numpy as np

from driple.inspector.time.time_rows import TimeRow
from time_contest.contestant import Answer, Rows
from time_contest.ernest import absolute_rates, features
from time_contest.experiment_design import chosen_runs
from time_contest.job_runs import MOST_RUNS, JobRuns, near_runs
from time_contest.relative_lstsq import LEAST_S


def learn(train: Rows, seed: int) -> Answer:
    """Nothing of other jobs is used."""

    def answer(row: TimeRow, runs: Rows) -> float:
        return max(float(features([row])[0] @ absolute_rates(runs)), LEAST_S) if runs else np.nan

    return answer


def designed_runs(row: TimeRow, runs: JobRuns, seed: int) -> Rows:
    """Up to MOST_RUNS runs by the experiment design."""
    known = near_runs(row, runs)
    if not known:
        return ()
    found = features(known)
    return [known[place] for place in chosen_runs(found, found[:, 1], MOST_RUNS)]
