"""Rates of amounts of work from measured times: non-negative, with the least relative absolute errors.

    minimise  sum over rows |(offset + amounts . rates) / seconds - 1| + penalties   over rates >= 0

Reweighted least squares. Absolute errors make the fit robust to outlier rows; relative ones give short steps the same
weight as long ones.
"""

from __future__ import annotations

import numpy as np

from driple.inspector.base_model.nonnegative_lstsq import nonnegative
from driple.inspector.data.array_types import FloatArray

TURNS = 6
EXACT = 0.03
"""Relative error below which the weight of a row does not grow."""


def fit_rates(
    amounts: FloatArray,
    seconds: FloatArray,
    penalties: FloatArray,
    *,
    offset: FloatArray | None = None,
    prior: FloatArray | None = None,
    turns: int = TURNS,
) -> FloatArray:
    """[C] rates. An amount that no row has keeps the rate of its prior.

    Args:
        amounts: [n, C], not negative.
        seconds: [n], positive.
        penalties: [C]: how much a rate is held at its prior, in units of the mean time of its amount.
        offset: [n] seconds that are known; default 0.
        prior: [C]; default 0.
        turns: of the reweighting.
    """
    most = amounts.max(axis=0, initial=0.0)
    scale = np.where(most > 0, most, 1.0)
    relative = amounts / scale / seconds[:, None]
    wanted = np.ones(len(seconds)) if offset is None else 1.0 - offset / seconds
    held = (penalties * relative.mean(axis=0)) ** 2 * len(seconds)
    start = np.zeros(amounts.shape[1]) if prior is None else prior * scale
    weights = np.ones(len(seconds))
    found = start
    for _ in range(turns):
        weighted = relative * weights[:, None]
        products = relative.T @ weighted + np.diag(held)
        found = nonnegative(products[None], (weighted.T @ wanted + held * start)[None])[0]
        weights = 1 / np.maximum(np.abs(relative @ found - wanted), EXACT)
        weights *= len(seconds) / weights.sum()
    return np.where(most > 0, found, start) / scale
