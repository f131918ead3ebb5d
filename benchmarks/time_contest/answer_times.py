"""How long a contestant takes to answer for one workload, with the graph in memory and the model trained.

Features of the graph are computed anew for each answer. For contestants that need runs of the job, the runs themselves
are not part of it: they are counted in machine seconds.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence

import numpy as np
from time_contest import predict_ddl, simulator_alone
from time_contest.contest import SEED
from time_contest.contestant import Contestant
from time_contest.folds import Fold
from time_contest.job_runs import JobRuns

from driple.inspector.data.workload_features import FEATURE_CACHE
from driple.inspector.time.time_rows import TimeRow
from driple.pipeline.graph.public import forget_wirings

ANSWERS = 40


def answer_seconds(rows: Sequence[TimeRow], contestant: Contestant, fold: Fold) -> float:
    """Median over test rows of a fold."""
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
    return statistics.median(found)


def forget() -> None:
    """Clears what is known of graphs."""
    FEATURE_CACHE.clear()
    forget_wirings()
    predict_ddl.EMBEDDED.clear()
    simulator_alone.forget()
