"""Fits a few numbers by trying all of a grid: predictions of every row at every point, of which the best is taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

Row = TypeVar("Row")
Point = TypeVar("Point")


class GridFit(Generic[Row, Point]):
    """All predictions of some rows, computed once."""

    def __init__(
        self,
        rows: Sequence[Row],
        grid: Sequence[Point],
        predict: Callable[[Row, Point], float],
        measured: Callable[[Row], float],
    ) -> None:
        self.rows = list(rows)
        self.grid = list(grid)
        self._predicted: NDArray[np.float64] = np.array([[predict(row, point) for point in grid] for row in rows])
        self._errors = np.abs(self._predicted / np.array([measured(row) for row in rows])[:, None] - 1)

    def best(self, use: Callable[[Row], bool] = lambda row: True) -> int:
        """The position in the grid with the least mean error over the rows that are used."""
        chosen = [number for number, row in enumerate(self.rows) if use(row)]
        return int(np.argmin(self._errors[chosen].mean(axis=0)))

    def at(self, point: int) -> list[float]:
        """Every row predicted at one point."""
        return [float(value) for value in self._predicted[:, point]]

    def left_out(self, key: Callable[[Row], object], among: Callable[[Row], object] = lambda row: None) -> list[float]:
        """Every row predicted by a fit to the rows of other keys, among those of the same kind."""
        found = []
        for number, own in enumerate(self.rows):
            point = self.best(lambda row, own=own: key(row) != key(own) and among(row) == among(own))  # type: ignore[misc]
            found.append(float(self._predicted[number, point]))
        return found
