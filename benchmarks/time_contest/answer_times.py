"""How long a contestant takes to answer for one workload, with the graph in memory and the model trained.

Features of the graph are computed anew for each answer; a simulation is part of it where it is used. For contestants
that need runs of the job, the runs themselves are not part of it: they are counted in machine seconds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import numpy as np

from driple.inspector.data.workload_features import FEATURE_CACHE
from driple.inspector.time import work_amounts
from driple.inspector.time.time_rows import TimeRow
from driple.pipeline.graph.public import forget_wirings
from time_contest import predict_ddl
from time_contest.contest import SEED
from time_contest.contestant import Contestant
from time_contest.folds import Fold
from time_contest.job_runs import JobRuns

ANSWERS = 40


def answer_seconds(rows: Sequence[TimeRow], contestant: Contestant, fold: Fold, simulation_s: float) -> float:
    """Median over test rows of a fold; `simulation_s` is the time of a simulation."""
    train = [rows[number] for number in fold.train]
    runs = JobRuns(rows[number] for number in fold.runs)
    predict = contestant.fit(train, runs, SEED)
    chosen = np.random.default_rng(0).permutation(len(fold.test))[:ANSWERS]
    predict([rows[fold.test[int(chosen[0])]]])  # models of a place are fitted when they are first asked
    found = []
    for place in chosen.tolist():
        forget()
        begin = time.perf_counter()
        predict([rows[fold.test[place]]])
        found.append(time.perf_counter() - begin)
    return statistics.median(found) + (simulation_s if contestant.simulates else 0.0)


def forget() -> None:
    """Clears what is known of graphs."""
    FEATURE_CACHE.clear()
    work_amounts._CACHE.clear()
    forget_wirings()
    predict_ddl.EMBEDDED.clear()
