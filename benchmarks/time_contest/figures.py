"""The figures of the page, from predictions: errors by part, contestant and place, and what they cost."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from driple.inspector.data.array_types import FloatArray
from driple.inspector.time.time_rows import TimeRow, step_times
from time_contest.cherrypick_search import search_jobs
from time_contest.contestant import Contestant
from time_contest.errors import coverage, error_of, noise_floor, percent_errors
from time_contest.folds import Fold
from time_contest.kept_predictions import Predicted
from time_contest.places import Place, place_of, places_of
from time_contest.registry import OURS

Figures = dict[str, Any]
ALL = "all"
"""Mean over places."""
KEPT_PARTS = ("architecture", "family")
"""Parts whose predictions are in the figures, row by row."""


Names = Mapping[Place, str]


def names_of_places(rows: Sequence[TimeRow]) -> dict[Place, str]:
    """A short name for each place: the setting, with machine and framework where several places have it."""
    letters = letters_of_machines(rows)
    places = places_of(rows)
    names = {}
    for place in places:
        alike = [other for other in places if other.setting == place.setting]
        parts = [f"machine {letters[place.machine]}"] if len({other.machine for other in alike}) > 1 else []
        parts += [place.framework] if len({other.framework for other in alike}) > 1 else []
        names[place] = f"{place.setting} ({', '.join(parts)})" if parts else place.setting
    return names


def letters_of_machines(rows: Sequence[TimeRow]) -> dict[str, str]:
    """A letter for each machine, in the order of the rows."""
    return {
        machine: chr(ord("A") + number) for number, machine in enumerate(dict.fromkeys(row.machine for row in rows))
    }


def figures_of(
    rows: Sequence[TimeRow],
    contestants: Mapping[str, Contestant],
    folds: Sequence[Fold],
    predictions: Mapping[str, Mapping[int, Predicted]],
) -> Figures:
    """All figures.

    Args:
        rows: measured.
        contestants: by name.
        folds: of all parts.
        predictions: of each contestant, by position of the fold.
    """
    names = names_of_places(rows)
    letters = letters_of_machines(rows)
    found: Figures = {
        "places": {
            names[place]: {
                "rows": sum(place_of(row) == place for row in rows),
                "machine": letters[place.machine],
                "noise": noise_floor([row for row in rows if place_of(row) == place]),
                "repeated": sum(len(row.repeats) > 1 for row in rows if place_of(row) == place),
            }
            for place in places_of(rows)
        },
        "families": len({row.family for row in rows}),
        "models": len({row.model for row in rows}),
        "contestants": {
            name: {"title": one.title, "source": one.source, "needs_runs": one.needs_runs, "simulates": one.simulates}
            for name, one in contestants.items()
        },
        "parts": {},
        "samples": {},
        "predictions": {},
        "coverage": {},
    }
    parts = list(dict.fromkeys(fold.part for fold in folds))
    for part in parts:
        own = [number for number, fold in enumerate(folds) if fold.part == part]
        for name in contestants:
            known = predictions.get(name, {})
            if all(number in known for number in own):
                _add(found, rows, names, part, name, [(folds[number], known[number]) for number in own])
    whole = whole_predictions(rows, folds, predictions.get(OURS, {}), "family")
    if whole is not None:
        found["coverage"] = _coverage(rows, names, whole)
        search = search_jobs(rows, whole)
        found["search"] = None if search is None else {**search._asdict(), "ways": [list(way) for way in search.ways]}
    return found


def whole_predictions(
    rows: Sequence[TimeRow], folds: Sequence[Fold], known: Mapping[int, Predicted], part: str
) -> FloatArray | None:
    """[n] seconds of every row by the fold that tests it; NaN where none does; None if a fold is missing."""
    found = np.full(len(rows), np.nan)
    for number, fold in enumerate(folds):
        if fold.part == part:
            if number not in known:
                return None
            found[list(fold.test)] = _numbers(known[number].seconds)
    return found


def _add(
    found: Figures,
    rows: Sequence[TimeRow],
    names: Names,
    part: str,
    name: str,
    results: Sequence[tuple[Fold, Predicted]],
) -> None:
    tested = [number for fold, _ in results for number in fold.test]
    seconds = np.concatenate([_numbers(predicted.seconds) for _, predicted in results])
    mine = [rows[number] for number in tested]
    errors = percent_errors(step_times(mine), seconds)
    where = [names[place_of(row)] for row in mine]
    by_place: dict[str, Any] = {}
    for place in dict.fromkeys(sorted(where)):
        own = [number for number, one in enumerate(where) if one == place]
        error = error_of(errors[own], [mine[number].family for number in own])
        by_place[place] = None if error is None else asdict(error)
    known = [error for error in by_place.values() if error is not None]
    if known:
        by_place[ALL] = {score: statistics.mean(error[score] for error in known) for score in ("mape", "median")}
    found["parts"].setdefault(part, {})[name] = by_place
    runs = [count for _, predicted in results for count in predicted.sample_runs]
    if runs:
        spent = [one for _, predicted in results for one in predicted.sample_machine_s]
        found["samples"].setdefault(part, {})[name] = {
            "runs": statistics.mean(runs),
            "machine_s": statistics.mean(spent),
        }
    if part in KEPT_PARTS:
        found["predictions"].setdefault(part, {})[name] = {
            "rows": tested,
            "seconds": [None if np.isnan(one) else float(f"{one:.4g}") for one in seconds.tolist()],
        }


def _coverage(rows: Sequence[TimeRow], names: Names, whole: FloatArray) -> dict[str, float | None]:
    found = {}
    for place, name in names.items():
        own = [number for number, row in enumerate(rows) if place_of(row) == place and not np.isnan(whole[number])]
        mine = [rows[number] for number in own]
        found[name] = coverage(step_times(mine), whole[own], [row.family for row in mine])
    return found


def _numbers(values: Sequence[float | None]) -> FloatArray:
    return np.array([np.nan if one is None else one for one in values], dtype=np.float64)


def measured_rows(rows: Sequence[TimeRow], names: Names) -> list[list[Any]]:
    """Place, workload, family, step and number of runs of each row: what predictions are compared with."""
    return [[names[place_of(row)], row.label, row.family, float(f"{row.step_s:.4g}"), len(row.repeats)] for row in rows]
