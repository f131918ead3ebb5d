"""Places: a setting on a machine, for a framework.

Contestants that are fitted for each place take the nearest rows that they have.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np

from driple.inspector.data.array_types import FloatArray
from driple.inspector.time.time_rows import TimeRow


class Place(NamedTuple):
    """Where rows were measured: `TimeRow.site`, with names."""

    setting: str
    machine: str
    framework: str


def place_of(row: TimeRow) -> Place:
    return Place(*row.site)


def places_of(rows: Iterable[TimeRow]) -> list[Place]:
    """All places of rows, sorted."""
    return sorted({place_of(row) for row in rows})


def hosts(row: TimeRow) -> int:
    """Hosts of a job: one for each server and worker."""
    return row.setting.servers + row.setting.workers


def nearest_rows(train: Sequence[TimeRow], place: Place, least: int = 1) -> list[TimeRow]:
    """Training rows of the place if there are `least`, else those of its machine and framework, of its machine, all."""
    near: tuple[Callable[[TimeRow], bool], ...] = (
        lambda row: place_of(row) == place,
        lambda row: place_of(row)[1:] == place[1:],
        lambda row: row.machine == place.machine,
    )
    found = ([row for row in train if is_near(row)] for is_near in near)
    return next((rows for rows in found if len(rows) >= least), list(train))


def by_place(
    fit: Callable[[list[TimeRow]], Callable[[Sequence[TimeRow]], FloatArray]], train: Sequence[TimeRow], least: int = 1
) -> Callable[[Sequence[TimeRow]], FloatArray]:
    """A predictor that has a model for each place, fitted to the nearest rows."""
    models: dict[Place, Callable[[Sequence[TimeRow]], FloatArray]] = {}

    def predict(rows: Sequence[TimeRow]) -> FloatArray:
        found = np.full(len(rows), np.nan)
        for place in places_of(rows):
            if place not in models:
                models[place] = fit(nearest_rows(train, place, least))
            mine = [number for number, row in enumerate(rows) if place_of(row) == place]
            found[mine] = models[place]([rows[number] for number in mine])
        return found

    return predict
