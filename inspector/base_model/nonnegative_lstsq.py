"""Least squares whose solutions are never negative: many small problems at once, from their products.

    least x' A x - 2 b' x  over all x >= 0        A = M' M [n, n], b = M' y [n]

At the solution each unknown is either free, with a gradient of 0, or 0, with a gradient that is not negative. Given a
guess which are free, all problems are solved by one call, and the unknowns that offend against this change sides:
block principal pivoting (Portugal, Judice and Vicente, 1994). From the guess of a problem that is almost the same, two
or three rounds do. Where changing all of them at once gets no further, only the last one changes, which cannot go round
in circles; should rounding errors make it do so, or have made a problem singular, scipy has the last word. A solver
that takes rows needs the longer the more rows there are; here their number does not count.
"""

from __future__ import annotations

import numpy as np

from driple.inspector.data.array_types import BoolArray, FloatArray

TINY = 1e-140
"""Size of a column up to which its unknown has no say: squares would vanish."""
TOLERANCE = 1e-11
"""Of signs, relative to the largest product."""
ROUNDS = 1000
"""At most: a few dozen are many."""
CHANCES = 3
"""Rounds in which changing all may fail to leave fewer offenders than ever before."""


def nonnegative(products: FloatArray, sides: FloatArray, free: BoolArray | None = None) -> FloatArray:
    """Solutions [P, n].

    Args:
        products: A of each problem [P, n, n], positive definite but for unknowns without any say (all zeros): these
            become 0.
        sides: b [P, n].
        free: a guess which unknowns are more than 0 [P, n].

    Raises:
        ValueError: there is something else than finite numbers.
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
