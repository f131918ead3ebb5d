"""Processor seconds of a worker in a step: a sum of amounts of work, each times a rate that is never negative.

    cpu_s = flops * flop_s[class] + bytes * byte_s[class] + ops * op_s + free ops * free_op_s      (its ops)
          + moved bytes * moved_s + tensors * tensor_s + session_s                                (the runtime)

First all classes share one rate per FLOP and one per byte. Then every class has its own rate, with a penalty on its
relative distance from the shared one: a class with few data keeps the shared rate. The penalty and the constant of
narrow layers (narrow_layers.py) are chosen on families that are held back, because only these show what a rate is worth
for a graph of another kind.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from driple.contracts.errors import BadInput
from driple.pipeline.graph.public import CLASSES, COUNTED, TrainingStep
from driple.simulator.narrow_layers import narrow_factor
from driple.simulator.op_kinds import CLASS_OF_KIND, FREE, KINDS, kind_numbers

FloatArray: TypeAlias = NDArray[np.float64]

SIZED = tuple(name for name in CLASSES if name in CLASS_OF_KIND.values())
"""Classes whose ops take and give tensors."""
GENERAL = ("flops", "bytes", "ops", "free ops", "moved bytes", "tensors", "session")
OWN = (*(f"flops {name}" for name in COUNTED), *(f"bytes {name}" for name in SIZED))
NARROW = (0.0, 2.0, 4.0, 8.0, 16.0)
PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0)
AS_GOOD = 1.05
"""The greatest penalty with at most this multiple of the least error is chosen: rates are nearer to the shared ones."""
SHRINKAGE = 0.01
"""Penalty of rates that have no shared rate beside them, as a share of what they explain."""
OF_SESSION = 0.6
"""The same of the constant of a step. It explains little of a long step, and without short ones among the rows, errors
of the other rates would become a constant that is many times too large for a short step."""
LEAST_FLOP_S, LEAST_BYTE_S = 1e-13, 2e-11
"""Shared rates of a fast core, where the first fit gives everything to the other amount: 10 TFLOP/s and 50 GB/s."""
TURNS = 5
"""Iterations of reweighted least squares."""
EXACT = 0.03
"""Relative error below which the weight of a row does not grow."""
FEWEST = 3
"""Families with which a penalty can be chosen."""

_SIZED_NUMBER = np.array([SIZED.index(name) if name in SIZED else -1 for name in CLASS_OF_KIND.values()])
_COUNTED_NUMBER = np.array([COUNTED.index(name) if name in COUNTED else -1 for name in CLASS_OF_KIND.values()])
_FREE_KIND = KINDS.index(FREE)
_SHARED = 2
"""Of GENERAL, the first ones have rates by class."""


@dataclass(frozen=True)
class OpRates:
    """Seconds per unit of work."""

    flop_s: dict[str, float]
    """By class of COUNTED."""
    byte_s: dict[str, float]
    """By class of SIZED."""
    op_s: float
    free_op_s: float
    moved_s: float
    tensor_s: float
    session_s: float
    narrow: float
    """Channels of narrow_layers.py."""
    error_pct: float
    """Median absolute relative error on families that were held back; of all rows if there are too few families."""
    points: int


Work: TypeAlias = Mapping[float, FloatArray]
"""By constant of narrow layers, [n, GENERAL and OWN]: the amounts of each row."""


def work_of(steps: Sequence[TrainingStep]) -> Work:
    """The work of steps."""
    return {narrow: np.array([amounts(step, narrow) for step in steps]) for narrow in NARROW}


def amounts(step: TrainingStep, narrow: float) -> FloatArray:
    """The work of a step: GENERAL, then OWN."""
    kinds = kind_numbers(step)
    runs, moved = step.executions, step.executions * (step.read_bytes + step.written_bytes)
    sized, counted = _SIZED_NUMBER[kinds], _COUNTED_NUMBER[kinds]
    flops = runs * step.flops * narrow_factor(step, narrow)
    of_class = np.bincount(counted[counted >= 0], flops[counted >= 0], minlength=len(COUNTED))
    by_class = np.bincount(sized[sized >= 0], moved[sized >= 0], minlength=len(SIZED))
    ops, free = float(runs[sized >= 0].sum()), float(runs[kinds == _FREE_KIND].sum())
    crossing = step.pulled_bytes + step.pushed_bytes
    general = [of_class.sum(), by_class.sum(), ops, free, crossing, len(step.pulls) + len(step.pushes), 1.0]
    return np.concatenate([general, of_class, by_class])


def fit_rates(work: Work, cpu_s: FloatArray, families: Sequence[str]) -> OpRates:
    """The rates of measured processor seconds.

    Args:
        work: the amounts of each row.
        cpu_s: [n], all more than 0.
        families: [n], rows of a family are held back together.
    """
    if not len(cpu_s) or not (cpu_s > 0).all():
        raise BadInput("no processor seconds to fit rates to: CPU metrics are missing")
    errors = {
        (narrow, penalty): _held_back(work[narrow], cpu_s, np.array(families), penalty)
        for narrow, penalty in itertools.product(work, PENALTIES)
    }
    good = [one for one, error in errors.items() if error <= AS_GOOD * min(errors.values())]
    narrow, penalty = min(good, key=lambda one: (-one[1], errors[one]))
    found = class_rates(work[narrow], cpu_s, penalty)
    op_s, free_op_s, moved_s, tensor_s, session_s = found[_SHARED : len(GENERAL)].tolist()
    own = found[len(GENERAL) :].tolist()
    return OpRates(
        flop_s=dict(zip(COUNTED, own[: len(COUNTED)], strict=True)),
        byte_s=dict(zip(SIZED, own[len(COUNTED) :], strict=True)),
        op_s=op_s,
        free_op_s=free_op_s,
        moved_s=moved_s,
        tensor_s=tensor_s,
        session_s=session_s,
        narrow=narrow,
        error_pct=100 * errors[narrow, penalty],
        points=len(cpu_s),
    )


def class_rates(work: FloatArray, cpu_s: FloatArray, penalty: float) -> FloatArray:
    """Rates [GENERAL and OWN]; the shared ones are 0, because every class has its own."""
    count = len(GENERAL)
    shares = np.where(np.arange(count) == count - 1, OF_SESSION, SHRINKAGE)
    flop_s, byte_s, *_ = relative_nonnegative(work[:, :count], cpu_s, shares)
    units = np.where(np.arange(len(OWN)) < len(COUNTED), max(flop_s, LEAST_FLOP_S), max(byte_s, LEAST_BYTE_S))
    table = np.concatenate([work[:, _SHARED:count], work[:, count:] * units], axis=1)
    wanted = np.concatenate([np.zeros(count - _SHARED), np.ones(len(OWN))])
    relative = table / cpu_s[:, None]
    general = _strengths(relative[:, : count - _SHARED], shares[_SHARED:])
    strengths = np.concatenate([general, np.full(len(OWN), penalty)])
    found = _robust(relative, strengths, wanted)
    return np.concatenate([np.zeros(_SHARED), found[: count - _SHARED], found[count - _SHARED :] * units])


def relative_nonnegative(table: FloatArray, seconds: FloatArray, shares: FloatArray) -> FloatArray:
    """Non-negative rates of small |table @ rates / seconds - 1|, drawn to 0 by a share of what each explains."""
    relative = table / seconds[:, None]
    return _robust(relative, _strengths(relative, shares), np.zeros(table.shape[1]))


def _strengths(relative: FloatArray, shares: FloatArray) -> FloatArray:
    return np.asarray(shares * np.sqrt(len(relative)) * relative.mean(axis=0))


def _robust(relative: FloatArray, strengths: FloatArray, wanted: FloatArray) -> FloatArray:
    """Non-negative x of small |relative @ x - 1| and, squared, strengths * (x - wanted)."""
    from scipy.optimize import nnls

    size = np.maximum(relative.max(axis=0), strengths)
    size[size == 0] = 1.0
    scaled, ridge = relative / size, np.diag(strengths / size)
    weights = np.ones(len(relative))
    found = wanted
    for _ in range(TURNS + 1):
        rows = np.concatenate([scaled * weights[:, None], ridge])
        found = nnls(rows, np.concatenate([weights, strengths * wanted]))[0] / size
        weights = 1 / np.sqrt(np.maximum(np.abs(relative @ found - 1), EXACT))
        weights /= weights.mean()
    return np.asarray(found, dtype=np.float64)


def _held_back(work: FloatArray, cpu_s: FloatArray, families: NDArray[np.str_], penalty: float) -> float:
    """Median absolute relative error on families that are held back in turn: one strange family does not decide."""
    names = np.unique(families)
    if len(names) < FEWEST:
        return float(np.median(np.abs(work @ class_rates(work, cpu_s, penalty) / cpu_s - 1)))
    errors = []
    for family in names:
        out = families == family
        errors += np.abs(work[out] @ class_rates(work[~out], cpu_s[~out], penalty) / cpu_s[out] - 1).tolist()
    return float(np.median(errors))
