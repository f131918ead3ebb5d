"""The published recipe left to end by itself, from scratch and transferred.

    python benchmarks/results.py --part recipe                        all of it: 40 minutes on two processors
    python benchmarks/results_recipe.py cpu-p2w2-1g half              one training of it

Trainings are kept in ~/.cache/driple/results, and go on from there when they were interrupted. How many epochs one
takes does not depend on what else the machine does, so several may run at a time. How long an epoch takes does: that is
measured at the end, on a machine that does nothing else.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from results_contest import SOURCE, figures, say, settings_in

from driple.inspector.data.dataset_rows import read_examples
from driple.inspector.model.inspector_folder import save
from driple.inspector.model.model_config import changed, preset
from driple.inspector.training.initialisation import Transfer
from driple.inspector.training.train_inspector import Trained, train_inspector
from driple.inspector.training.train_network import Epoch
from driple.inspector.training.transfer_source import find_source

SPLIT = "architecture"
SCRATCH, TUNED = "scratch", ("half", "mlp")
EPOCHS = {SCRATCH: 1500, **dict.fromkeys(TUNED, 200)}
"""At most."""
TOLD_EVERY = 100
SETTINGS = 2
"""The source, and one that is transferred to."""
ROUNDS, TIMED_EPOCHS = 5, 4
KEPT = Path.home() / ".cache" / "driple" / "results"


def measure(datasets: Path) -> dict[str, Any]:
    """By setting: how long each way went on, what it reached, and how long it took to the error that both reach."""
    found: dict[str, Any] = {}
    for setting in settings_in(datasets)[:SETTINGS]:
        ways = (SCRATCH,) if setting == SOURCE else (SCRATCH, *TUNED)
        trained = {way: train(datasets, setting, way) for way in ways}
        seconds = _seconds_of_epochs(datasets, setting, ways)
        found[setting] = {way: _told(datasets, setting, trained[way], seconds[way][1]) for way in ways}
        for way in ways[1:]:
            both = [_errors(trained[each]) for each in (SCRATCH, way)]
            equal = max(min(errors) for errors in both)
            epochs = [next(number for number, error in enumerate(errors) if error <= equal) for errors in both]
            taken = []
            for count, (first, later) in zip(epochs, (seconds[SCRATCH], seconds[way]), strict=True):
                taken.append(first + count * later)
            found[setting][way] |= {"equal": equal, "epochs_to_equal": epochs, "times_faster": taken[0] / taken[1]}
    return {"source": SOURCE, "epochs": EPOCHS, "settings": found}


def train(datasets: Path, setting: str, way: str) -> Trained:
    """One training, or what is kept of it."""

    def watch(member: int, epoch: Epoch) -> None:
        if epoch.number % TOLD_EVERY == 0:
            say(f"{setting} {way}: epoch {epoch.number}, best {epoch.best_epoch}, {epoch.seconds:.0f} s")

    options: dict[str, Any] = {"states": KEPT / setting / way, "resume": True, "watch": watch}
    return _begun(datasets, setting, way, EPOCHS[way], options)


def _begun(datasets: Path, setting: str, way: str, epochs: int, options: dict[str, Any]) -> Trained:
    config = changed(preset("paper"), epochs=epochs)
    examples = read_examples(datasets, setting)
    transfer = None
    if way != SCRATCH:
        learned = train(datasets, SOURCE, SCRATCH)
        with tempfile.TemporaryDirectory() as folder:
            save(Path(folder) / SOURCE, learned.inspector)
            transfer = Transfer(source=find_source(SOURCE, Path(folder), setting, examples.role), tune=way)
    return train_inspector(examples, config, split=SPLIT, seed=0, transfer=transfer, **options)


def _seconds_of_epochs(datasets: Path, setting: str, ways: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    """Of epoch 0, in which what is frozen is computed, and of each later one.

    Medians, in turns: what slows the machine down slows all of them.
    """
    found: dict[str, list[tuple[float, float]]] = {way: [] for way in ways}
    for _ in range(ROUNDS):
        for way in ways:
            (fitted,) = _begun(datasets, setting, way, TIMED_EPOCHS, {}).fits
            first, last = (fitted.history[place]["seconds"] for place in (0, -1))
            found[way].append((first, (last - first) / TIMED_EPOCHS))
    return {
        way: (statistics.median(a for a, _ in each), statistics.median(b for _, b in each))
        for way, each in found.items()
    }


def _errors(trained: Trained) -> list[float]:
    return [row["val_nrmse"] for row in trained.fits[0].history]


def _told(datasets: Path, setting: str, trained: Trained, seconds: float) -> dict[str, Any]:
    test = read_examples(datasets, setting).side(SPLIT, "test")
    (fitted,) = trained.fits
    errors = _errors(trained)
    return {
        "epochs": fitted.epochs,
        "best_epoch": fitted.best_epoch,
        "seconds_of_an_epoch": seconds,
        "val_nrmse": min(errors),
        "val_nrmse_epoch": errors.index(min(errors)),
        **figures(test, trained.inspector.predict(test)[0]),
    }


if __name__ == "__main__":
    torch.set_num_threads(1)
    train(Path("datasets"), *sys.argv[1:3])
