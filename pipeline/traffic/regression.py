"""Ordinary least squares with confidence intervals, for few rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from driple.contracts.errors import BadInput

LEVEL = 0.95
INTERCEPT = "intercept"
_POINTS = 20_001


class Coefficient(NamedTuple):
    """One coefficient with its interval."""

    name: str
    value: float
    low: float
    high: float


class Fit(NamedTuple):
    """A regression."""

    coefficients: tuple[Coefficient, ...]
    rows: int
    freedom: int
    """Degrees of freedom of the residuals."""
    r_squared: float


def regress(target: Sequence[float], numbers: Mapping[str, Sequence[float]], kinds: Mapping[str, Sequence[str]]) -> Fit:
    """Fits `target` by numbers and kinds. The first kind in order of name is the reference of the others.

    A column that the others determine is left out. Raises BadInput if there are too few rows for an interval.
    """
    y = np.asarray(target, float)
    columns: dict[str, Any] = {INTERCEPT: np.ones(len(y))}
    columns |= {name: np.asarray(values, float) for name, values in numbers.items()}
    for name, values in kinds.items():
        for kind in sorted(set(values))[1:]:
            columns[f"{name}={kind}"] = np.array([value == kind for value in values], float)
    names: list[str] = []
    for name, column in columns.items():
        trial = np.stack([columns[other] for other in names] + [column], axis=1)
        scale = np.maximum(np.abs(trial).max(axis=0, initial=0.0), 1e-300)
        if np.linalg.matrix_rank(trial / scale) == len(names) + 1:
            names.append(name)
    x = np.stack([columns[name] for name in names], axis=1) if names else np.zeros((len(y), 0))
    freedom = len(y) - len(names)
    if freedom < 1 or not names:
        raise BadInput(f"regression: {len(y)} rows for {len(names)} coefficients; expected more rows")
    scale = np.abs(x).max(axis=0)
    inverse = np.linalg.pinv(x / scale)
    beta = inverse @ y
    residual = y - (x / scale) @ beta
    variance = float(residual @ residual) / freedom
    error = np.sqrt(variance * np.einsum("ij,ij->i", inverse, inverse)) / scale
    beta = beta / scale
    reach = student_t(LEVEL, freedom) * error
    total = float(((y - y.mean()) ** 2).sum())
    found = tuple(
        Coefficient(name, float(b), float(b - r), float(b + r)) for name, b, r in zip(names, beta, reach, strict=True)
    )
    return Fit(found, len(y), freedom, 1 - float(residual @ residual) / total if total else 1.0)


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """The mean, and half the width of its interval, from as many values as there are; None for fewer than two."""
    known = np.asarray(values, float)
    if len(known) < 2:
        return None
    reach = student_t(LEVEL, len(known) - 1) * float(known.std(ddof=1)) / math.sqrt(len(known))
    return float(known.mean()), reach


def student_t(level: float, freedom: int) -> float:
    """The value that Student's t exceeds in absolute value with probability 1 - level.

    With t = sqrt(freedom) tan(a), the density is proportional to cos(a)^(freedom - 1).
    """
    angle = np.linspace(0.0, math.pi / 2, _POINTS)
    density = np.cos(angle) ** (freedom - 1)
    area = np.r_[0.0, np.cumsum((density[1:] + density[:-1]) / 2)]
    return math.sqrt(freedom) * math.tan(float(np.interp(level, area / area[-1], angle)))
