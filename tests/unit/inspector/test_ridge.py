"""Ridges of several targets and of all folds at once are those that are fitted one by one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from driple.inspector.base_model.ridge import STRENGTHS, ridges, solve

ROWS, FOLDS = 24, 4


def rows() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    random = np.random.default_rng(0)
    seen = random.normal(size=(ROWS, 6))
    wanted = seen @ random.normal(size=(6, 4)) + random.normal(0, 0.5, (ROWS, 4))
    wanted[3:7, 1] = np.nan
    wanted[:, 3] = np.nan
    return seen, wanted


def test_one_decomposition_gives_the_ridge_of_every_strength() -> None:
    seen, wanted = rows()
    for strength, line, bias in zip(STRENGTHS, *solve(seen, wanted[:, 0], STRENGTHS), strict=True):
        known = Ridge(alpha=strength).fit(seen, wanted[:, 0])
        np.testing.assert_allclose(line, known.coef_, rtol=1e-6)
        np.testing.assert_allclose(bias, known.intercept_, rtol=1e-6)


def test_what_is_said_of_a_row_is_said_without_its_fold_by_the_strength_that_errs_least() -> None:
    seen, wanted = rows()
    folds: NDArray[np.int64] = np.arange(ROWS) % FOLDS
    lines, said = ridges(seen, wanted, folds)
    assert lines[3] is None and (said[:, 3] == 0).all()
    for place in range(3):
        known = ~np.isnan(wanted[:, place])
        held = np.zeros((len(STRENGTHS), ROWS))
        for number, strength in enumerate(STRENGTHS):
            for fold in range(FOLDS):
                rest = known & (folds != fold)
                model = Ridge(alpha=strength).fit(seen[rest], wanted[rest, place])
                held[number, folds == fold] = model.predict(seen[folds == fold])
        best = int(((held - wanted[:, place])[:, known] ** 2).sum(axis=1).argmin())
        np.testing.assert_allclose(said[:, place], held[best], rtol=1e-6)
        line, model = lines[place], Ridge(alpha=STRENGTHS[best]).fit(seen[known], wanted[known, place])
        assert line is not None
        np.testing.assert_allclose(line.predict(seen), model.predict(seen), rtol=1e-6)
