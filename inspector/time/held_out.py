"""Errors of a time model on what it has not seen: families, settings and machines. Its intervals come from them.

An error is ln(measured / predicted).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np

from driple.inspector.data.array_types import BoolArray, FloatArray
from driple.inspector.time.simulated_steps import StepSimulator
from driple.inspector.time.time_model import LEAST_FAMILIES, LEAST_ROWS, TimeModel
from driple.inspector.time.time_rows import TimeRow, step_times, table_of
from driple.inspector.time.time_table import Site

COMPUTING = 0.3
"""Largest share of the link's seconds in a step that counts as computing."""

Progress = Callable[[int, int], None]


def of_families(
    rows: Sequence[TimeRow], progress: Progress = lambda done, total: None, like: TimeModel | None = None
) -> FloatArray:
    """[n] predictions of each row by a model without the rows of its family; NaN where nothing else is left."""
    families = np.array([row.family for row in rows])
    return _predictions(rows, [(families == one, families == one) for one in np.unique(families)], progress, like)


def of_settings(
    rows: Sequence[TimeRow], progress: Progress = lambda done, total: None, like: TimeModel | None = None
) -> FloatArray:
    """[n] predictions by a model without the rows of the setting and those of the family anywhere.

    NaN where no other setting was measured on the machine.
    """
    families = np.array([row.family for row in rows])
    settings = np.array([str(row.setting) for row in rows])
    machines = np.array([row.machine for row in rows])
    folds = []
    for setting in np.unique(settings):
        own = settings == setting
        others = set(machines[~own])
        reachable = np.array([machine in others for machine in machines])
        for group in _groups(families[own]):
            mine = own & reachable & np.isin(families, group)
            folds.append((mine, own | np.isin(families, group)))
    return _predictions(rows, folds, progress, like)


def of_machines(
    rows: Sequence[TimeRow], simulator: StepSimulator, progress: Progress = lambda done, total: None
) -> FloatArray:
    """[n] predictions by a model without the rows of the machine, but with one anchor run of each of its settings.

    The anchors also give the speed of the machine in simulations. NaN for the anchors, and where there is one machine
    only.
    """
    machines = np.array([row.machine for row in rows])
    found = np.full(len(rows), np.nan)
    names = np.unique(machines)
    for number, machine in enumerate(names if len(names) > 1 else ()):
        progress(number, len(names))
        own = machines == machine
        try:
            model = _fitted(rows, ~own)
        except ValueError:
            continue
        anchors = [best_anchor([rows[place] for place in places]) for places in _by_site(rows, own).values()]
        speeds = {str(machine): simulator.speed_of(anchors)}
        anchored = model.with_anchors(simulator.simulated(anchors, speeds), speeds)
        judged = [place for place in np.flatnonzero(own).tolist() if rows[place] not in anchors]
        found[judged] = anchored.predict(simulator.simulated([rows[place] for place in judged], speeds))
    return found


def best_anchor(rows: Sequence[TimeRow]) -> TimeRow:
    """The row that tells most of its machine: the most arithmetic, of those that hardly wait for a link."""
    table, seconds = table_of(rows), step_times(rows)
    waiting = table.link / seconds
    computes = waiting <= max(COMPUTING, float(waiting.min()))
    return rows[int(np.where(computes, table.amount("flops"), -1.0).argmax())]


def errors_of(rows: Sequence[TimeRow], predicted: FloatArray) -> FloatArray:
    """[n] ln(measured / predicted); NaN where nothing was predicted."""
    return np.asarray(np.log(step_times(rows) / predicted), dtype=np.float64)


def _groups(families: Iterable[str], count: int = 5) -> Iterator[list[str]]:
    """Families in a few groups: leaving each out alone would take long."""
    names = sorted(set(families))
    for first in range(min(count, len(names))):
        yield names[first::count]


def _by_site(rows: Sequence[TimeRow], chosen: BoolArray) -> dict[Site, list[int]]:
    found: dict[Site, list[int]] = {}
    for place in np.flatnonzero(chosen).tolist():
        found.setdefault(rows[place].site, []).append(place)
    return found


def _fitted(rows: Sequence[TimeRow], kept: BoolArray, like: TimeModel | None = None) -> TimeModel:
    """Raises ValueError if too few rows are kept."""
    left = [rows[place] for place in np.flatnonzero(kept).tolist()]
    if len(left) < LEAST_ROWS or len({row.family for row in left}) < LEAST_FAMILIES:
        raise ValueError("too few rows")
    return TimeModel.fit(left, like=like)


def _predictions(
    rows: Sequence[TimeRow],
    folds: Sequence[tuple[BoolArray, BoolArray]],
    progress: Progress,
    like: TimeModel | None,
) -> FloatArray:
    """[n]; each fold has the rows that are predicted, and those that the model must not see."""
    found = np.full(len(rows), np.nan)
    for number, (judged, hidden) in enumerate(folds):
        progress(number, len(folds))
        if not judged.any():
            continue
        try:
            model = _fitted(rows, ~hidden, like)
        except ValueError:
            continue
        known = set(model.machines)
        places = [place for place in np.flatnonzero(judged).tolist() if rows[place].machine in known]
        found[places] = model.predict([rows[place] for place in places])
    return found
