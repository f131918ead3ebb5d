"""How good inspectors of parameter servers are: rows of role `ps`, beside the baselines."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from results_contest import contestants, figures, overall, race, say, settings_in, timed

from driple.contracts.setting import Setting
from driple.contracts.strategy import SERVER
from driple.inspector.data.dataset_rows import read_examples
from driple.inspector.data.examples import Examples
from driple.inspector.evaluation import baselines

OURS = "driple"
SPLIT = "architecture"
SEEDS = 5


def measure(datasets: Path) -> dict[str, Any]:
    """By setting that has servers: workloads on each side, and the figures of each predictor and seed."""
    settings = [setting for setting in settings_in(datasets) if Setting.parse(setting).servers]
    return {setting: _compared(read_examples(datasets, setting, SERVER)) for setting in settings}


def _compared(examples: Examples) -> dict[str, Any]:
    train, val, test = (examples.side(SPLIT, side) for side in ("train", "val", "test"))
    predictors: dict[str, list[dict[str, Any]]] = {}
    for seed in range(SEEDS):
        for name in baselines.BASELINES:
            predict, seconds = timed(partial(baselines.fit, name, train, val, seed))
            predictors.setdefault(name, []).append({"seconds": seconds, **figures(test, predict(test))})
        found = race(examples, contestants()[OURS], SPLIT, seed)
        own = {"seconds": found.seconds, **figures(test, found.trained.inspector.predict(test)[0])}
        predictors.setdefault(OURS, []).append(own)
        said = ", ".join(f"{name} {overall(rows[-1]):.3f}" for name, rows in predictors.items())
        say(f"{examples.setting} {SERVER} seed {seed}: {said}")
    return {
        "rows": {"train": len(train), "val": len(val), "test": len(test)},
        "provenance": examples.provenance,
        "predictors": predictors,
    }
