"""Fits of scikit-learn that end at their limit of iterations without a warning: the limit is part of the method."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import TypeVar

Made = TypeVar("Made")


def quietly(what: Callable[[], Made]) -> Made:
    """What it made."""
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return what()
