"""How errors fall with the number of measured workloads, from scratch and transferred from another setting."""

from __future__ import annotations

import dataclasses
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from results_contest import SOURCE, contestants, figures, race, say, settings_in

from driple.inspector.data.dataset_rows import read_examples
from driple.inspector.data.examples import Examples
from driple.inspector.evaluation import baselines
from driple.inspector.model.inspector_folder import save
from driple.inspector.training.initialisation import Transfer
from driple.inspector.training.scratch_comparison import compare
from driple.inspector.training.train_inspector import Trained, train_inspector
from driple.inspector.training.transfer_source import find_source

SPLIT = "architecture"
SIZES = (20, 40, 80, 160)
SEEDS = 5
PARTS = ("half", "mlp")
OTHERS = ("driple: network only", "paper")
"""Inspectors that are transferred with all rows of the first setting only: to compare times."""


def measure(datasets: Path) -> dict[str, Any]:
    """By setting: figures of every number of rows and seed."""
    source = read_examples(datasets, SOURCE)
    found: dict[str, Any] = {}
    for setting in settings_in(datasets):
        if setting != SOURCE:
            found[setting] = _of(source, read_examples(datasets, setting), () if found else OTHERS)
    return {"source": SOURCE, "settings": found}


def _of(source: Examples, target: Examples, others: tuple[str, ...]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return {"trials": _trials(source, target, others, Path(folder))}


def _trials(source: Examples, target: Examples, others: tuple[str, ...], folder: Path) -> list[dict[str, Any]]:
    known = [item for item in target.items if getattr(item, f"split_{SPLIT}") != "test"]
    sizes = [size for size in SIZES if size < len(known)]
    rows = []
    for seed in range(SEEDS):
        for name in ("driple", *others):
            learned = train_inspector(source, contestants()[name], seed=seed)
            save(folder / name / source.setting, learned.inspector)
        for size in [*sizes, len(known)]:
            part = some(target, size, seed)
            names = ("driple", *others) if size == len(known) else ("driple",)
            found = {name: _tried(part, name, seed, folder / name / source.setting) for name in names}
            rows.append({"rows": size, "seed": seed, "trees": _trees(part, seed), **found})
            scratch = found["driple"]["scratch"]["nrmse"]["all"]
            say(f"{target.setting} {size} rows, seed {seed}: {scratch:.3f}")
    return rows


def some(examples: Examples, size: int, seed: int) -> Examples:
    """As if so many workloads had been measured to train on and validate by; the test side stays whole."""
    rng = np.random.default_rng(seed)
    kept = set()
    total = sum(len(examples.side(SPLIT, side)) for side in ("train", "val"))
    for side in ("train", "val"):
        items = examples.side(SPLIT, side).items
        wanted = round(size * len(items) / total)
        kept |= {id(items[place]) for place in rng.permutation(len(items))[:wanted]}
    kept |= {id(item) for item in examples.side(SPLIT, "test").items}
    return dataclasses.replace(examples, items=tuple(item for item in examples.items if id(item) in kept))


def _tried(examples: Examples, name: str, seed: int, learned: Path) -> dict[str, Any]:
    config = contestants()[name]

    def begin_from(tune: str) -> Transfer:
        # Read anew each time: one that had been used before would know these graphs.
        source = find_source(str(learned), learned.parent, examples.setting, examples.role)
        return Transfer(source=source, tune=tune)

    scratch = race(examples, config, SPLIT, seed)
    found: dict[str, Any] = {"scratch": {"seconds": scratch.seconds, **_figures(examples, scratch.trained)}}
    for tune in PARTS:
        moved = race(examples, config, SPLIT, seed, partial(begin_from, tune))
        compared = compare(moved.trained.fits, scratch.trained.fits)
        ours, theirs = (each.seconds_to(compared["equal_val_nrmse"]) for each in (moved, scratch))
        assert ours is not None and theirs is not None  # both reach what both reach
        found[tune] = {
            "seconds": moved.seconds,
            "times_faster": compared["times_faster"],
            "times_faster_from_the_beginning": theirs / ours,
            **_figures(examples, moved.trained),
        }
    return found


def _trees(examples: Examples, seed: int) -> dict[str, Any]:
    predict = baselines.fit(baselines.TREES, examples.side(SPLIT, "train"), examples.side(SPLIT, "val"), seed)
    test = examples.side(SPLIT, "test")
    return figures(test, predict(test))


def _figures(examples: Examples, trained: Trained) -> dict[str, Any]:
    test = examples.side(SPLIT, "test")
    return figures(test, trained.inspector.predict(test)[0])
