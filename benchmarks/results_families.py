"""How good inspectors are on new families without a look at the test side: families of the other two sides take turns.

The test side has four families and has been looked at often. Here the other eleven are dealt into folds, the largest
family first, each to the fold with the fewest rows. Each fold is predicted once by inspectors that learned from the
others, one of which they are chosen by; errors are those of all predictions together.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from results_contest import contestants, figures, overall, say, settings_in

from driple.inspector.data.dataset_rows import read_examples
from driple.inspector.data.examples import Examples
from driple.inspector.evaluation import baselines
from driple.inspector.model.model_config import changed
from driple.inspector.training.train_inspector import train_inspector

FloatArray: TypeAlias = NDArray[np.float64]
Learn: TypeAlias = Callable[[Examples, int], FloatArray]
"""What is said of the test side by what learned from the others, with a seed."""

SPLIT = "architecture"
FOLDS = 6
SEEDS = 2
LEASHES = (0.1, 0.5, 1.0)
"""Beside that of `driple`: how far its network may go from the plain model."""


def measure(datasets: Path) -> dict[str, Any]:
    """By setting, then by predictor: errors of every seed."""
    found: dict[str, Any] = {}
    for setting in settings_in(datasets):
        examples = read_examples(datasets, setting)
        known = [item for item in examples.items if item.split_architecture != "test"]
        folds = dealt(Counter(str(item.workload["family"]) for item in known))
        rounds = list(_rounds(dataclasses.replace(examples, items=tuple(known)), folds))
        predictors: dict[str, list[dict[str, Any]]] = {}
        for seed in range(SEEDS):
            for name, learn in _learners().items():
                predictors.setdefault(name, []).append(_taken_turns(rounds, learn, seed))
            said = ", ".join(f"{name} {overall(rows[-1]):.4f}" for name, rows in predictors.items())
            say(f"{setting} seed {seed}: {said}")
        found[setting] = {"rows": len(known), "folds": folds, "predictors": predictors}
    return {"settings": found}


def dealt(rows: Counter[str]) -> list[list[str]]:
    """Families by fold."""
    folds: list[list[str]] = [[] for _ in range(FOLDS)]
    for family, _ in sorted(rows.items(), key=lambda each: (-each[1], each[0])):
        min(folds, key=lambda fold: sum(rows[name] for name in fold)).append(family)
    return folds


def _rounds(examples: Examples, folds: list[list[str]]) -> Iterator[Examples]:
    """Each fold as the test side; the next one is to validate by, but for the first, which has too many rows for it."""
    for number, tested in enumerate(folds):
        chosen_by = folds[number % (FOLDS - 1) + 1]
        sides = {**dict.fromkeys(chosen_by, "val"), **dict.fromkeys(tested, "test")}
        yield dataclasses.replace(
            examples,
            items=tuple(
                dataclasses.replace(item, split_architecture=sides.get(str(item.workload["family"]), "train"))
                for item in examples.items
            ),
        )


def _learners() -> dict[str, Learn]:
    configs = contestants()
    configs |= {f"driple, leash {leash:g}": changed(configs["driple"], most_added=leash) for leash in LEASHES}

    def inspector(name: str) -> Learn:
        return lambda examples, seed: train_inspector(
            examples, configs[name], split=SPLIT, seed=seed
        ).inspector.predict(examples.side(SPLIT, "test"))[0]

    def baseline(name: str) -> Learn:
        def learn(examples: Examples, seed: int) -> FloatArray:
            train, val, test = (examples.side(SPLIT, side) for side in ("train", "val", "test"))
            return baselines.fit(name, train, val, seed)(test)

        return learn

    return {name: inspector(name) for name in configs} | {name: baseline(name) for name in baselines.BASELINES}


def _taken_turns(rounds: list[Examples], learn: Learn, seed: int) -> dict[str, Any]:
    said = [learn(each, seed) for each in rounds]
    items = [item for each in rounds for item in each.side(SPLIT, "test").items]
    return figures(dataclasses.replace(rounds[0], items=tuple(items)), np.concatenate(said))
