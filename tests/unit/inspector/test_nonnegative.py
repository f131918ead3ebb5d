"""Many small problems at once have the solutions that scipy finds one by one."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import nnls

from driple.inspector.base_model.nonnegative_lstsq import nonnegative
from driple.inspector.data.array_types import FloatArray

PROBLEMS, ROWS, UNKNOWNS = 40, 30, 12


def problems(seed: int, *, alike: float) -> tuple[FloatArray, FloatArray]:
    """Rows and what they should add up to. The more alike the columns, the harder they are to tell apart."""
    random = np.random.default_rng(seed)
    common = random.uniform(size=(PROBLEMS, ROWS, 1))
    rows = alike * common + (1 - alike) * random.uniform(size=(PROBLEMS, ROWS, UNKNOWNS))
    return rows * 10.0 ** random.integers(-6, 6, (PROBLEMS, 1, UNKNOWNS)), random.normal(1, 1, (PROBLEMS, ROWS))


def solved(rows: FloatArray, sides: FloatArray, free: NDArray[np.bool_] | None = None) -> FloatArray:
    turned = rows.swapaxes(1, 2)
    return nonnegative(turned @ rows, (turned @ sides[..., None])[..., 0], free)


@pytest.mark.parametrize("alike", [0.0, 0.9, 0.999])
def test_each_is_what_scipy_finds(alike: float) -> None:
    rows, sides = problems(0, alike=alike)
    found = solved(rows, sides)
    assert (found >= 0).all() and (found == 0).any() and (found > 0).any()
    for own, side, x in zip(rows, sides, found, strict=True):
        wanted = nnls(own, side)[0]
        scale = np.linalg.norm(own, axis=0)
        np.testing.assert_allclose(scale * x, scale * wanted, atol=1e-6 * np.abs(scale * wanted).max())


@pytest.mark.parametrize("guess", ["all", "none", "any"])
def test_a_guess_changes_nothing_but_the_time(guess: str) -> None:
    rows, sides = problems(1, alike=0.9)
    chances = {"all": 1.0, "none": 0.0, "any": 0.5}
    free = np.random.default_rng(2).uniform(size=(PROBLEMS, UNKNOWNS)) < chances[guess]
    np.testing.assert_allclose(solved(rows, sides, free), solved(rows, sides), rtol=1e-6, atol=1e-12)


def test_what_does_not_end_is_left_to_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, sides = problems(5, alike=0.5)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    wanted = solved(rows, sides)
    monkeypatch.setattr("driple.inspector.base_model.nonnegative_lstsq.ROUNDS", 2)
    np.testing.assert_allclose(solved(rows, sides), wanted, atol=1e-6 * wanted.max())


def test_a_singular_problem_is_left_to_scipy() -> None:
    rows, sides = problems(6, alike=0.5)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows[:, :, 1] = rows[:, :, 0]
    found = solved(rows, sides, np.ones((PROBLEMS, UNKNOWNS), dtype=bool))
    for own, side, x in zip(rows, sides, found, strict=True):
        assert np.linalg.norm(own @ x - side) == pytest.approx(nnls(own, side)[1], rel=1e-6)


def test_what_is_no_number_is_an_error() -> None:
    with pytest.raises(ValueError, match="infinite"):
        nonnegative(np.full((1, 2, 2), np.inf), np.ones((1, 2)))
    with pytest.raises(ValueError, match="infinite"):
        nonnegative(np.eye(2)[None], np.full((1, 2), np.nan))


def test_an_unknown_without_any_say_is_0() -> None:
    rows, sides = problems(3, alike=0.0)
    rows[:, :, 4] = 0
    found = solved(rows, sides, np.ones((PROBLEMS, UNKNOWNS), dtype=bool))
    assert (found[:, 4] == 0).all()
    others = [place for place in range(UNKNOWNS) if place != 4]
    np.testing.assert_allclose(found[:, others], solved(rows[:, :, others], sides), rtol=1e-9)


def test_where_nothing_is_wanted_all_are_0() -> None:
    rows, sides = problems(4, alike=0.5)
    assert (solved(rows, -np.abs(sides)) == 0).all()
    assert (solved(rows, 0 * sides) == 0).all()
    assert solved(rows[:0], sides[:0]).shape == (0, UNKNOWNS)
