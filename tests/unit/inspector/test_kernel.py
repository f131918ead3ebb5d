"""Kernel ridge regression: like what was near, the mean where nothing was."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from numpy.typing import NDArray

from driple.contracts.errors import BadInput
from driple.contracts.json_values import from_plain, to_plain
from driple.contracts.metrics import COLUMNS
from driple.inspector.base_model.kernel_ridge import KernelRidge
from driple.inspector.data.array_types import FloatArray

FOLDS: NDArray[np.int64] = np.arange(120) % 6


def rows(seed: int = 0) -> tuple[FloatArray, FloatArray]:
    random = np.random.default_rng(seed)
    seen = random.uniform(-2, 2, (120, 2))
    wanted = np.full((120, len(COLUMNS)), np.nan)
    wanted[:, 0] = np.sin(2 * seen[:, 0]) * seen[:, 1] + 5
    wanted[20:, 1] = seen[20:, 0] ** 2
    return seen, wanted


def test_it_follows_what_no_line_does() -> None:
    kernel, held = KernelRidge.fit(*rows(), FOLDS)
    seen, wanted = rows(1)
    said = kernel.predict(seen)
    for place, known in ((0, slice(None)), (1, slice(20, None))):
        variance = wanted[known, place].var()
        assert ((said - wanted)[known, place] ** 2).mean() < 0.02 * variance
        assert ((held - rows()[1])[known, place] ** 2).mean() < 0.05 * variance
    assert (said[:, 2:] == 0).all()
    assert (held[:, 2:] == 0).all()


def test_what_is_held_back_is_said_without_the_fold() -> None:
    seen, wanted = rows()
    _, held = KernelRidge.fit(seen, wanted, FOLDS)
    wanted[FOLDS == 0, 0] += 1000 * np.arange(20)  # no longer anything that could be guessed
    _, other = KernelRidge.fit(seen, wanted, FOLDS)
    assert np.abs(other[FOLDS == 0, 0] - held[FOLDS == 0, 0]).max() < 5


def test_far_from_all_rows_it_says_about_their_mean() -> None:
    seen, wanted = rows()
    kernel = dataclasses.replace(KernelRidge.fit(seen, wanted, FOLDS)[0], widths=(0.3,) * len(COLUMNS))
    far = kernel.predict(np.full((1, 2), 3.0))
    assert far[0, 0] == pytest.approx(wanted[:, 0].mean(), abs=0.5)


def test_it_travels_as_plain_values_and_is_checked() -> None:
    kernel, _ = KernelRidge.fit(*rows(), FOLDS)
    again = from_plain(KernelRidge, to_plain(kernel))
    assert again == kernel
    with pytest.raises(BadInput, match="different numbers of targets"):
        dataclasses.replace(kernel, widths=kernel.widths[1:])
    with pytest.raises(BadInput, match="a weight for each of 120 rows"):
        dataclasses.replace(kernel, weights=((1.0,), *kernel.weights[1:]))
    with pytest.raises(BadInput, match="no rows"):
        dataclasses.replace(kernel, points=(), weights=tuple(None if each is None else () for each in kernel.weights))
    with pytest.raises(BadInput, match="more than 0"):
        dataclasses.replace(kernel, widths=(0.0, *kernel.widths[1:]))
    with pytest.raises(BadInput, match="different lengths"):
        dataclasses.replace(kernel, points=((1.0,), *kernel.points[1:]))
