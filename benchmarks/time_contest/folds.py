"""Folds of the contest: which rows are learned from, and which are predicted.

architecture   the file's split: training and validation sides, then the test side
random         the file's random split, likewise
family         leave one family of models out, each in turn
model          leave one model out, each in turn
setting K      leave one setting out whose machine has others, then give K of its rows back, drawn at random
machine K      leave one machine out; with K = 1 one chosen run of each of its settings is given back: the workload that
               the time predictor names as the best anchor, from the rows of the other machines

In the last two a contestant that needs runs of the very job may only use training rows: nothing else ran on the setting
or the machine. In the others it may use every other row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from driple.inspector.time.held_out import best_anchor
from driple.inspector.time.time_rows import TimeRow
from time_contest.features import graph_totals
from time_contest.places import place_of, places_of

ANCHORS = (0, 5, 10, 20)
DRAWS = 3
"""Draws of anchors for each setting."""


@dataclass(frozen=True)
class Fold:
    """Positions of rows."""

    part: str
    name: str
    train: tuple[int, ...]
    test: tuple[int, ...]
    runs: tuple[int, ...]
    """Rows that may be chosen as runs of the very job."""
    speed_rows: tuple[int, ...] | None = None
    """Rows from which the speed of the tested machine is fitted in simulations; None for all rows of the machine."""


Rows = Sequence[TimeRow]


def architecture(rows: Rows) -> Iterator[Fold]:
    yield _split(rows, "architecture")


def random(rows: Rows) -> Iterator[Fold]:
    yield _split(rows, "random")


def _split(rows: Rows, name: str) -> Fold:
    tested = [getattr(row.example, f"split_{name}") == "test" for row in rows]
    return _fold(name, name, tested)


def families(rows: Rows) -> Iterator[Fold]:
    for family in sorted({row.family for row in rows}):
        yield _fold("family", family, [row.family == family for row in rows])


def models(rows: Rows) -> Iterator[Fold]:
    for model in sorted({row.model for row in rows}):
        yield _fold("model", model, [row.model == model for row in rows])


def _fold(part: str, name: str, tested: Sequence[bool]) -> Fold:
    train = tuple(number for number, test in enumerate(tested) if not test)
    test = tuple(number for number, test in enumerate(tested) if test)
    return Fold(part, name, train, test, tuple(range(len(tested))))


def settings(rows: Rows) -> Iterator[Fold]:
    for setting, machine in known_machines(rows):
        own = [number for number, row in enumerate(rows) if (str(row.setting), row.machine) == (setting, machine)]
        others = [number for number, row in enumerate(rows) if row.machine == machine and number not in set(own)]
        for count in ANCHORS:
            for draw in range(DRAWS if count else 1):
                rng = np.random.default_rng([draw, count])
                anchors = sorted(rng.choice(own, min(count, len(own) // 2), replace=False).tolist())
                yield _left_out(f"setting {count}", f"{setting}, {machine}, draw {draw}", rows, own, anchors, others)


def known_machines(rows: Rows) -> list[tuple[str, str]]:
    """Settings and machines, where the machine has rows of another setting."""
    found = sorted({(str(row.setting), row.machine) for row in rows})
    return [one for one in found if sum(other[1] == one[1] for other in found) > 1]


def machines(rows: Rows) -> Iterator[Fold]:
    known = sorted({row.machine for row in rows})
    for machine in known if len(known) > 1 else ():
        own = [number for number, row in enumerate(rows) if row.machine == machine]
        yield _left_out("machine 0", machine, rows, own, [], [])
        anchors = chosen_anchors(rows, own)
        yield _left_out("machine 1", machine, rows, own, anchors, anchors)


def chosen_anchors(rows: Rows, own: Sequence[int]) -> list[int]:
    """A row of each site of a machine: the workload that is named by the rows of the other machines.

    Where it was not measured, the row with the most FLOPs by second of the link, of those with at least as many FLOPs
    as half of the rows. Both are known before anything runs on the machine.
    """
    mine = set(own)
    named = best_anchor([row for number, row in enumerate(rows) if number not in mine]).label
    found = []
    for place in places_of(rows[number] for number in own):
        here = [number for number in own if place_of(rows[number]) == place]
        same = [number for number in here if rows[number].label == named]
        found.append(same[0] if same else here[_most_computing([rows[number] for number in here])])
    return found


def _most_computing(rows: Rows) -> int:
    totals = np.nan_to_num(graph_totals(rows))
    share = totals[:, 0] / np.maximum(totals[:, 3], 1e-6)
    return int(np.where(totals[:, 0] >= np.median(totals[:, 0]), share, -1.0).argmax())


def _left_out(
    part: str, name: str, rows: Rows, own: Sequence[int], anchors: Sequence[int], speed_rows: Sequence[int]
) -> Fold:
    test = tuple(number for number in own if number not in set(anchors))
    train = tuple(number for number in range(len(rows)) if number not in set(test))
    return Fold(part, name, train, test, train, tuple(speed_rows))


PARTS: dict[str, Callable[[Rows], Iterator[Fold]]] = {
    "architecture": architecture,
    "family": families,
    "model": models,
    "setting": settings,
    "machine": machines,
    "random": random,
}
"""By the first word of `Fold.part`."""


def folds_of(rows: Rows, parts: Sequence[str]) -> list[Fold]:
    """The folds of some parts; folds without training or test rows are left out."""
    return [fold for part in parts for fold in PARTS[part](rows) if fold.train and fold.test]
