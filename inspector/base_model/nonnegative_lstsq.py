"""Non-negative least squares of many small problems at once, from their products.

    minimise x' A x - 2 b' x  over x >= 0        A = M' M [n, n], b = M' y [n]

At the solution each unknown is free with gradient 0, or 0 with a gradient >= 0. Given a guess of the free ones, one
call solves all problems, and unknowns that violate the condition change sides: block principal pivoting (Portugal,
Judice and Vicente, 1994). A guess from a similar problem needs two or three rounds. Where changing all violators makes
no progress, only the last one changes, which cannot cycle; if rounding errors make it cycle or a problem singular,
scipy solves it. Unlike a solver on rows, the time does not depend on their number.
"""

from __future__ import annotations

import numpy as np

from driple.inspector.data.array_types import BoolArray, FloatArray

TINY = 1e-140
"""Columns of smaller size are ignored: their squares would vanish."""
TOLERANCE = 1e-11
"""Tolerance of signs, relative to the largest product."""
ROUNDS = 1000
"""Rounds at most; a few dozen are many."""
CHANCES = 3
"""Rounds in which changing all may fail to leave fewer violators than ever before."""


def nonnegative(products: FloatArray, sides: FloatArray, free: BoolArray | None = None) -> FloatArray:
    """Solutions [P, n].

    Args:
        products: A of each problem [P, n, n], positive definite except for all-zero columns, whose unknowns become 0.
        sides: b [P, n].
        free: a guess of the unknowns that are more than 0 [P, n].

    Raises:
        ValueError: a number is not finite.
    """
    if not (np.isfinite(products).all() and np.isfinite(sides).all()):
        raise ValueError("least squares of infinite numbers")
    count = sides.shape[1]
    sizes = np.sqrt(np.einsum("pii->pi", products))
    units = 1.0 / np.where(sizes > TINY, sizes, 1.0)
    limits = TOLERANCE * np.abs(sides * units).max(axis=1, initial=0.0)[:, None]
    free = np.zeros(sides.shape, dtype=bool) if free is None else free & (sizes > TINY)
    found = np.zeros(sides.shape)
    fewest, chances = np.full(len(sides), count + 1), np.full(len(sides), CHANCES)
    left = np.arange(len(sides))
    for _ in range(ROUNDS):
        if not len(left):
            break
        mine, chosen = products[left], free[left]
        among = np.where(chosen[:, :, None] & chosen[:, None, :], mine, np.eye(count))
        try:
            x = np.linalg.solve(among, np.where(chosen, sides[left], 0.0)[..., None])
        except np.linalg.LinAlgError:  # not positive definite, if only by rounding errors
            break
        gradient = (mine @ x)[..., 0] - sides[left]
        x = x[..., 0]
        offends = np.where(chosen, x / units[left], gradient * units[left]) < -limits[left]
        offenders = offends.sum(axis=1)
        found[left[offenders == 0]] = x[offenders == 0]
        offends, offenders, left = offends[offenders > 0], offenders[offenders > 0], left[offenders > 0]
        chances[left] = np.where(offenders < fewest[left], CHANCES, chances[left] - 1)
        fewest[left] = np.minimum(fewest[left], offenders)
        last = count - 1 - offends[:, ::-1].argmax(axis=1)
        alone = np.arange(count) == last[:, None]
        free[left] ^= np.where(chances[left, None] >= 0, offends, alone)
    for place in left:
        found[place] = _one(products[place], sides[place])
    return np.maximum(found, 0.0)


def _one(products: FloatArray, sides: FloatArray) -> FloatArray:
    from scipy.optimize import nnls

    sizes, turns = np.linalg.eigh(products)
    roots = np.sqrt(np.maximum(sizes, np.finfo(float).eps * sizes[-1]))
    return np.asarray(nnls(roots[:, None] * turns.T, turns.T @ sides / roots)[0], dtype=np.float64)
