"""Measured runs of the very job of a row: what black-box methods must make before they can predict it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from hashlib import sha256

import numpy as np

from driple.inspector.time.time_rows import TimeRow
from time_contest.places import hosts

MOST_RUNS = 5
"""Sample runs of a job, at most."""
STEPS_OF_A_RUN = 18
"""Steps of a sample run, as in the measured datasets. Its start takes about ten seconds more, which are not counted."""

_JOB = (
    *("model", "dataset", "image_size", "sequence_length", "width", "optimiser", "update"),
    *("strategy", "framework", "topology"),
)
"""All of a workload but its batch size, which belongs to the configuration of a run."""


class JobRuns:
    """Measured rows by job."""

    def __init__(self, rows: Iterable[TimeRow] = ()) -> None:
        self._by_job: dict[tuple[object, ...], list[TimeRow]] = defaultdict(list)
        for row in rows:
            self._by_job[job_of(row)].append(row)

    def others(self, row: TimeRow) -> list[TimeRow]:
        """Runs of the job with another batch size, on another setting or on another machine; never the row itself."""
        own = configuration(row)
        return [one for one in self._by_job.get(job_of(row), ()) if configuration(one) != own]


def job_of(row: TimeRow) -> tuple[object, ...]:
    """Equal for all batch sizes and settings of a job."""
    return tuple(row.example.workload.get(name) for name in _JOB)


def configuration(row: TimeRow) -> tuple[object, ...]:
    """What differs between the runs of a job."""
    return str(row.setting), row.machine, row.example.workload["batch_size"]


def near_runs(row: TimeRow, runs: JobRuns) -> list[TimeRow]:
    """Other runs of the job: those of the row's machine if there are two, else all.

    A model of Ernest or CherryPick belongs to one instance type.
    """
    every = runs.others(row)
    near = [one for one in every if one.machine == row.machine]
    return near if len(near) > 1 else every


def random_runs(row: TimeRow, runs: JobRuns, seed: int) -> Sequence[TimeRow]:
    """Up to MOST_RUNS of them, drawn with a seed that depends on the row."""
    known = near_runs(row, runs)
    if len(known) <= MOST_RUNS:
        return known
    text = f"{seed} {row.label} {row.setting} {row.machine}"
    rng = np.random.default_rng(int.from_bytes(sha256(text.encode()).digest()[:8], "little"))
    return [known[place] for place in sorted(rng.choice(len(known), MOST_RUNS, replace=False).tolist())]


def machine_seconds(runs: Iterable[TimeRow]) -> float:
    """Seconds that hosts are busy with sample runs."""
    return sum(hosts(row) * STEPS_OF_A_RUN * row.step_s for row in runs)
