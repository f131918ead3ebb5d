"""CherryPick (Alipourfard et al., NSDI 2017): its Gaussian process as a predictor of one job.

    log seconds ~ GP with a Matern 5/2 kernel over the configuration, plus noise

The configuration is log2 batch size, workers, servers and log2 of the link rate. The process is fitted to up to five
runs of the very job, as CherryPick does before it stops. It has no other input: CherryPick treats jobs as black boxes.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from driple.inspector.data.array_types import FloatArray
from driple.inspector.time.time_rows import TimeRow, step_times
from time_contest.contestant import Answer, Rows
from time_contest.features import link_mbit

LEAST_RUNS = 2


def configurations(rows: Rows) -> FloatArray:
    """[n, 4]"""
    return np.array(
        [
            [
                np.log2(row.example.workload["batch_size"]),
                row.setting.workers,
                row.setting.servers,
                np.log2(link_mbit(row)),
            ]
            for row in rows
        ],
        dtype=np.float64,
    ).reshape(-1, 4)


def fitted_process(configuration: FloatArray, values: FloatArray) -> Any:
    """A Gaussian process of values [n] over configurations [n, 4]."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    kernel = ConstantKernel(1.0) * Matern([2.0, 1.0, 1.0, 2.0], (0.3, 30), nu=2.5) + WhiteKernel(1e-3, (1e-5, 1e-1))
    with warnings.catch_warnings():
        # Length scales of what does not vary in a few runs end at their limits.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(configuration, values)


def learn(train: Rows, seed: int) -> Answer:
    """Nothing of other jobs is used."""

    def answer(row: TimeRow, runs: Rows) -> float:
        if len(runs) < LEAST_RUNS:
            return np.nan
        process = fitted_process(configurations(runs), np.log(step_times(runs)))
        return float(np.exp(process.predict(configurations([row]))[0]))

    return answer
