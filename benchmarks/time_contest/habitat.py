"""Scaling of a measured step after Habitat (Yu et al., USENIX ATC 2021).

    step there = sum over op classes c of step here * share_c * time there of c / time here of c

Habitat measures every op of a job on one GPU and scales it by ratios of bandwidth and speed, weighted by the op's
arithmetic intensity. Here the job ran once, on another setting or machine; rates of each op class (FLOPs of what
computes, bytes of what moves data, seconds of the link, a constant) are fitted for each place to jobs of the training
rows, and they give the share and the ratio of each class. So the prediction is the measured step times the ratio of two
rooflines. Where the job with this batch size ran nowhere else, there is no prediction.
"""

from __future__ import annotations

import numpy as np

from driple.inspector.data.array_types import FloatArray
from driple.inspector.data.workload_features import WORKLOAD_FEATURES, workload_feature_table
from driple.inspector.time.time_rows import TimeRow, step_times
from driple.pipeline.graph.public import COUNTED
from time_contest.contestant import Answer, Rows
from time_contest.features import link_seconds
from time_contest.job_runs import JobRuns
from time_contest.places import Place, nearest_rows, place_of
from time_contest.relative_lstsq import relative_rates, seconds_by

MOVING = ("normalisation", "pooling", "elementwise", "reduction", "movement", "lookup", "update", "loop")
"""Classes of ops that are bound by memory."""
_COLUMNS = [
    WORKLOAD_FEATURES.index(name)
    for name in (*(f"log_{one}_megaflops" for one in COUNTED), *(f"log_{one}_kilobytes" for one in MOVING))
]
LEAST = len(_COLUMNS) + 2


def class_amounts(rows: Rows) -> FloatArray:
    """[n, C]: MFLOPs and kilobytes of op classes, seconds of the link, 1."""
    work = np.expm1(np.nan_to_num(workload_feature_table(row.example for row in rows)[:, _COLUMNS]))
    return np.concatenate([work, link_seconds(rows)[:, None], np.ones((len(rows), 1))], axis=1)


def origin(row: TimeRow, runs: JobRuns, seed: int) -> Rows:
    """One run of the same workload elsewhere: on the same machine, with as many workers, if there is a choice."""
    known = [one for one in runs.others(row) if one.label == row.label]

    def distance(one: TimeRow) -> tuple[bool, int, int, Place]:
        workers = abs(one.setting.workers - row.setting.workers)
        servers = abs(one.setting.servers - row.setting.servers)
        return one.machine != row.machine, workers, servers, place_of(one)

    return [min(known, key=distance)] if known else ()


def learn(train: Rows, seed: int) -> Answer:
    """Rates of op classes for each place."""
    rates: dict[Place, FloatArray] = {}

    def roofline(row: TimeRow, place: Place) -> float:
        if place not in rates:
            known = nearest_rows(train, place, LEAST)
            rates[place] = relative_rates(class_amounts(known), step_times(known))
        return float(seconds_by(class_amounts([row]), rates[place])[0])

    def answer(row: TimeRow, runs: Rows) -> float:
        if not runs:
            return np.nan
        here = runs[0]
        return here.step_s * roofline(row, place_of(row)) / roofline(here, place_of(here))

    return answer
