"""How good inspectors are on each setting and split, beside three baselines and the published recipe."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from results_contest import PAPER_EPOCHS, Race, contestants, figures, overall, race, say, settings_in, timed

from driple.inspector.data.dataset_rows import read_examples
from driple.inspector.data.examples import Examples
from driple.inspector.evaluation import baselines
from driple.inspector.model.training_rows import TrainingRows
from driple.inspector.predict.novelty import TrainingRegion
from driple.inspector.training.train_inspector import Trained

SEEDS = {"architecture": 5, "random": 2}


def measure(datasets: Path) -> dict[str, Any]:
    """By setting, then by split."""
    found: dict[str, Any] = {}
    for setting in settings_in(datasets):
        examples = read_examples(datasets, setting)
        found[setting] = {split: _compared(examples, split, seeds) for split, seeds in SEEDS.items()}
    return {"settings": found, "paper_epochs": PAPER_EPOCHS}


def _compared(examples: Examples, split: str, seeds: int) -> dict[str, Any]:
    train, val, test = (examples.side(split, side) for side in ("train", "val", "test"))
    predictors: dict[str, list[dict[str, Any]]] = {}
    shares: list[dict[str, float] | None] = []
    near: list[dict[str, Any]] = []
    curves: list[list[tuple[float, float]]] = []
    for seed in range(seeds):  # interleaved: what slows the machine down slows all contestants
        for name in baselines.BASELINES:
            predict, seconds = timed(partial(baselines.fit, name, train, val, seed))
            predictors.setdefault(name, []).append({"seconds": seconds, **figures(test, predict(test))})
        races: dict[str, Race] = {}
        for name, config in contestants().items():
            races[name] = found = race(examples, config, split, seed)
            predicted = found.trained.inspector.predict(test)[0]
            predictors.setdefault(name, []).append({"seconds": found.seconds, **figures(test, predicted)})
        shares.append(_shares(races["driple"], races["paper"]))
        curves.append(races["driple"].betterings())
        near = near or _by_nearness(examples, split, races["driple"].trained)
        said = ", ".join(f"{name} {overall(rows[-1]):.3f}" for name, rows in predictors.items())
        say(f"{examples.setting} {split} seed {seed}: {said}")
    return {
        "rows": {"train": len(train), "val": len(val), "test": len(test)},
        "provenance": examples.provenance,
        "predictors": predictors,
        "share_of_papers_time": shares,
        "betterings": curves,
        "nearness": near,
    }


def _by_nearness(examples: Examples, split: str, trained: Trained) -> list[dict[str, Any]]:
    """Of each test workload: how far from the training rows, and the mean of |log(predicted / true)| over targets."""
    test = examples.side(split, "test")
    places = TrainingRegion(TrainingRows.of(examples, split), trained.inspector.preparation.facts)
    true, predicted = test.targets(), trained.inspector.predict(test)[0]
    there = ~np.isnan(true) & ~np.isnan(predicted) & (true > 0) & (predicted > 0)
    logs = np.abs(np.log(np.where(there, predicted, 1.0) / np.where(there, true, 1.0)))
    found = []
    for item, error, count in zip(test.items, logs.sum(axis=1), there.sum(axis=1), strict=True):
        near = places.novelty_of(item)
        row = {"model": item.workload["model"], "distance": near.distance, "verdict": near.verdict}
        found.append({**row, "error": float(error / max(count, 1))})
    return found


def _shares(ours: Race, paper: Race) -> dict[str, float] | None:
    """Time of ours to the best validation error of the published recipe, over its own; both from the beginning of all.

    Its own is that to the epoch that had this error, and that of all its epochs. None if ours never gets there.
    """
    best = min(error for _, error in paper.epochs)
    reached, wanted = ours.seconds_to(best), paper.seconds_to(best)
    if reached is None or wanted is None:
        return None
    return {"to_best": reached / wanted, "whole": reached / paper.seconds, "seconds": reached}
