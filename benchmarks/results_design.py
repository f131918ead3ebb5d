"""The paper's design study on our data: one choice of the network at a time made otherwise, all else as it is.

Of the network alone: beside a plain model, differences between networks would hardly be seen.
"""

from __future__ import annotations

import statistics
from pathlib import Path
from typing import Any

from results_contest import contestants, figures, overall, say, settings_in

from driple.inspector.data.dataset_rows import read_examples
from driple.inspector.model.model_config import GRUS, changed
from driple.inspector.network.layers.registry import LAYERS
from driple.inspector.network.readouts.registry import READOUTS
from driple.inspector.training.train_inspector import train_inspector

SEEDS = 2
SETTINGS = 2
"""How many: the first ones, which have the most rows."""

_BY_NODES = {"shared": True, "jump": False}
"""A depth that depends on the number of nodes needs layers that share weights, and has no jumps."""

CHOICES: dict[str, dict[str, dict[str, Any]]] = {
    "grouping": {
        policy: {"grouping": policy}
        for policy in ("uniform:5", "uniform:20", "uniform:50", "uniform:100", "proportional", "sqrt", "linear:50")
    },
    "layer": {layer: {"layer": layer} for layer in LAYERS},
    "GRU": {gru: {"gru": gru} for gru in GRUS},
    "K": {
        **{str(number): {"depth": str(number)} for number in (1, 2, 3, 5)},
        **{f"{policy}, shared": {"depth": policy, **_BY_NODES} for policy in ("log2N", "sqrtN", "N/3", "N/2", "N")},
    },
    "readout": {readout: {"readout": readout} for readout in READOUTS},
}


def measure(datasets: Path) -> dict[str, Any]:
    """By choice, then by option: errors of every setting and seed."""
    base = contestants()["driple: network only"]
    settings = settings_in(datasets)[:SETTINGS]
    loaded = [read_examples(datasets, setting) for setting in settings]
    found: dict[str, dict[str, Any]] = {}
    for choice, options in CHOICES.items():
        for option, change in options.items():
            errors: list[list[float]] = []
            for examples in loaded:
                test = examples.side("architecture", "test")
                errors.append([])
                for seed in range(SEEDS):
                    config = changed(base, **change)
                    trained = train_inspector(examples, config, seed=seed)
                    errors[-1].append(overall(figures(test, trained.inspector.predict(test)[0])))
            found.setdefault(choice, {})[option] = {"nrmse": errors}
            say(f"{choice} {option}: {[round(statistics.mean(each), 3) for each in errors]}")
    return {"settings": settings, "choices": found}
