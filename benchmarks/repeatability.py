"""The definition of noise that all pages share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def mean_distance(values: NDArray[np.float64]) -> float:
    """How far one of several positive values lies from the mean of the others, on average, as a share of it."""
    others = (values.sum() - values) / (len(values) - 1)
    return float((np.abs(values - others) / values).mean())
