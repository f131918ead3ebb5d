"""The project's own time predictor, trained once over all settings (inspector/time/time_model.py)."""

from __future__ import annotations

from time_contest.contestant import Predict, Rows


def learn(train: Rows, seed: int) -> Predict:
    """One model for all settings."""
    from driple.inspector.time.time_model import TimeModel

    return TimeModel.fit(train).predict
