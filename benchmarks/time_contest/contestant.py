"""What a contestant is: it learns from training rows and then predicts the step times of other rows.

`Reused` contestants are trained once and predict any workload from what is known before it runs. `OwnRuns` contestants
need measured runs of the very job: for each row they choose some of its other runs, and the contest counts these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from driple.inspector.data.array_types import FloatArray
from driple.inspector.time.time_rows import TimeRow
from time_contest.job_runs import JobRuns

Rows: TypeAlias = Sequence[TimeRow]
Predict: TypeAlias = Callable[[Rows], FloatArray]
"""Rows to seconds [n]; NaN where there is no prediction. It does not look at the step times of the rows."""
Learn: TypeAlias = Callable[[Rows, int], Predict]
"""Training rows and a seed."""
Choose: TypeAlias = Callable[[TimeRow, JobRuns, int], Rows]
"""The runs of its job that are made to predict a row: a row, the measured runs, a seed."""
Answer: TypeAlias = Callable[[TimeRow, Rows], float]
"""Seconds of a row from the chosen runs of its job."""


@dataclass(frozen=True, kw_only=True)
class Reused:
    """A predictor that is trained once and needs no run of the job."""

    title: str
    source: str
    """Publication or code."""
    learn: Learn
    code: tuple[Path, ...] = ()
    """Files and folders behind it: a change of them makes kept predictions void."""
    simulates: bool = False
    """Whether it takes `simulated_s` of a row, which is then part of its time to answer."""

    def fit(self, train: Rows, runs: JobRuns, seed: int) -> Predict:
        return self.learn(train, seed)

    def samples(self, row: TimeRow, runs: JobRuns, seed: int) -> Rows:
        """The runs of the very job that a prediction needs: none."""
        return ()

    needs_runs = False


@dataclass(frozen=True, kw_only=True)
class OwnRuns:
    """A predictor that needs runs of the very job."""

    title: str
    source: str
    choose: Choose
    learn: Callable[[Rows, int], Answer]
    code: tuple[Path, ...] = ()
    simulates: bool = False

    def fit(self, train: Rows, runs: JobRuns, seed: int) -> Predict:
        answer = self.learn(train, seed)
        return lambda rows: np.array([answer(row, self.choose(row, runs, seed)) for row in rows], dtype=np.float64)

    def samples(self, row: TimeRow, runs: JobRuns, seed: int) -> Rows:
        """The runs of the very job that a prediction needs."""
        return self.choose(row, runs, seed)

    needs_runs = True


Contestant: TypeAlias = Reused | OwnRuns
