"""The published recipe left to end by itself, once for each setting: a thousand epochs without a better one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from results_contest import PAPER_EPOCHS, figures, say, settings_in

from driple.inspector.config import preset
from driple.inspector.data import read_examples
from driple.inspector.learn import train_inspector
from driple.inspector.train import Epoch

SPLIT = "architecture"
TOLD_EVERY = 100


def measure(datasets: Path) -> dict[str, Any]:
    """By setting: how long it went on, what it reached, and how much of that it had when other parts stop it."""
    found: dict[str, Any] = {}
    for setting in settings_in(datasets):
        examples = read_examples(datasets, setting)
        test = examples.side(SPLIT, "test")

        def watch(member: int, epoch: Epoch, setting: str = setting) -> None:
            if epoch.number % TOLD_EVERY == 0:
                say(f"{setting}: epoch {epoch.number}, best {epoch.best_epoch}, {epoch.seconds:.0f} s")

        trained = train_inspector(examples, preset("paper"), split=SPLIT, seed=0, watch=watch)
        (fitted,) = trained.fits
        losses = [row["val_loss"] for row in fitted.history]
        errors = [row["val_nrmse"] for row in fitted.history]
        found[setting] = {
            "epochs": fitted.epochs,
            "best_epoch": fitted.best_epoch,
            "val_loss": {"early": min(losses[: PAPER_EPOCHS + 1]), "end": min(losses)},
            "val_nrmse": {"early": min(errors[: PAPER_EPOCHS + 1]), "end": min(errors)},
            **figures(test, trained.inspector.predict(test)[0]),
        }
    return {"early": PAPER_EPOCHS, "settings": found}
