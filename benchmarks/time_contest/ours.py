"""The project's own time predictor, trained once over all settings (inspector/time/time_model.py).

A site with few training rows has anchors: they refit what belongs to the machine or the setting, as `--anchors` does.
Where nothing of a machine is known, the predictor refuses to answer. Three forms: with the simulation as shipped; with
simulated times that were fitted without the family of each row (simulator_alone.py), because the shipped parameters
have seen rows of the training and validation families; and without any simulation.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from driple.inspector.data.array_types import FloatArray
from driple.inspector.time.time_model import LEAST_ROWS, TimeModel
from driple.inspector.time.time_rows import TimeRow
from time_contest.contestant import Predict, Rows
from time_contest.simulator_alone import refitted_seconds


def learn(train: Rows, seed: int) -> Predict:
    """One model for all settings."""
    count = Counter(row.site for row in train)
    model = TimeModel.fit([row for row in train if count[row.site] >= LEAST_ROWS])
    model = model.with_anchors([row for row in train if count[row.site] < LEAST_ROWS])

    def predict(rows: Rows) -> FloatArray:
        found = np.full(len(rows), np.nan)
        known = [number for number, row in enumerate(rows) if row.machine in model.machines]
        found[known] = model.predict([rows[number] for number in known])
        return found

    return predict


def learn_refitted(train: Rows, seed: int) -> Predict:
    """With simulated times that were fitted without the family of each row, and none elsewhere."""

    def with_refitted(rows: Rows) -> list[TimeRow]:
        return [
            replace(row, simulated_s=None if np.isnan(seconds) else seconds)
            for row, seconds in zip(rows, refitted_seconds(rows, train).tolist(), strict=True)
        ]

    predict = learn(with_refitted(train), seed)
    return lambda rows: predict(with_refitted(rows))


def learn_laws(train: Rows, seed: int) -> Predict:
    """Without any simulation."""
    predict = learn([replace(row, simulated_s=None) for row in train], seed)
    return lambda rows: predict([replace(row, simulated_s=None) for row in rows])
