"""How good inspectors are on each setting and split, beside three baselines and the published recipe."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from results_contest import PAPER_EPOCHS, contestants, figures, overall, say, settings_in, timed

from driple.inspector import baselines
from driple.inspector.data import read_examples
from driple.inspector.examples import Examples
from driple.inspector.learn import Trained, train_inspector
from driple.inspector.nearness import Neighbourhood
from driple.inspector.trainingrows import TrainingRows

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
    for seed in range(seeds):  # interleaved: what slows the machine down slows all contestants
        for name in baselines.BASELINES:
            predict, seconds = timed(partial(baselines.fit, name, train, val, seed))
            predictors.setdefault(name, []).append({"seconds": seconds, **figures(test, predict(test))})
        races: dict[str, tuple[Trained, float]] = {}
        for name, config in contestants().items():
            trained, seconds = timed(partial(train_inspector, examples, config, split=split, seed=seed))
            races[name] = trained, seconds
            predicted = trained.inspector.predict(test)[0]
            predictors.setdefault(name, []).append({"seconds": seconds, **figures(test, predicted)})
        shares.append(_shares(races["driple"], races["paper"]))
        near = near or _by_nearness(examples, split, races["driple"][0])
        said = ", ".join(f"{name} {overall(rows[-1]):.3f}" for name, rows in predictors.items())
        say(f"{examples.setting} {split} seed {seed}: {said}")
    return {
        "rows": {"train": len(train), "val": len(val), "test": len(test)},
        "provenance": examples.provenance,
        "predictors": predictors,
        "share_of_papers_time": shares,
        "nearness": near,
    }


def _by_nearness(examples: Examples, split: str, trained: Trained) -> list[dict[str, Any]]:
    """Of each test workload: how far from the training rows, and the mean of |log(predicted / true)| over targets."""
    test = examples.side(split, "test")
    places = Neighbourhood(TrainingRows.of(examples, split), trained.inspector.preparation.facts)
    true, predicted = test.targets(), trained.inspector.predict(test)[0]
    there = ~np.isnan(true) & ~np.isnan(predicted) & (true > 0) & (predicted > 0)
    logs = np.abs(np.log(np.where(there, predicted, 1.0) / np.where(there, true, 1.0)))
    found = []
    for item, error, count in zip(test.items, logs.sum(axis=1), there.sum(axis=1), strict=True):
        near = places.near(item)
        row = {"model": item.workload["model"], "distance": near.distance, "verdict": near.verdict}
        found.append({**row, "error": float(error / max(count, 1))})
    return found


def _shares(ours: tuple[Trained, float], paper: tuple[Trained, float]) -> dict[str, float] | None:
    """Time of ours to the best validation error of the published recipe, over its own; both with their preparation.

    Its own is that to the epoch that had this error, and that of all its epochs. None if ours never gets there.
    """
    history = paper[0].fits[0].history
    best = min(row["val_nrmse"] for row in history)
    wanted = next(row["seconds"] for row in history if row["val_nrmse"] == best)
    reached = next((row["seconds"] for row in ours[0].fits[0].history if row["val_nrmse"] <= best), None)
    if reached is None:
        return None
    before, papers_before = (seconds - trained.seconds for trained, seconds in (ours, paper))
    return {
        "to_best": float((before + reached) / (papers_before + wanted)),
        "whole": float((before + reached) / paper[1]),
    }
