"""What the parts of the results have in common: settings, contestants, and the figures of one prediction."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from driple.inspector.data.examples import Examples
from driple.inspector.data.node_features import Featuriser
from driple.inspector.data.workload_features import FEATURE_CACHE
from driple.inspector.evaluation.scores import scores
from driple.inspector.model.model_config import InspectorConfig, changed, preset
from driple.inspector.training.initialisation import Transfer
from driple.inspector.training.train_inspector import Trained, train_inspector
from driple.inspector.training.train_network import Epoch
from driple.pipeline.graph.public import forget_wirings

FloatArray: TypeAlias = NDArray[np.float64]
Made = TypeVar("Made")

SOURCE = "cpu-p1w2-1g"
"""The setting that others are transferred from."""
PAPER_EPOCHS = 50
"""The published recipe would go on for thousands."""


def settings_in(datasets: Path) -> list[str]:
    """Settings that have a dataset, the source of transfers first."""
    found = {path.stem for path in datasets.glob("*.parquet")}
    return sorted(found, key=lambda setting: (setting != SOURCE, setting != "cpu-p2w2-1g", setting))


def contestants() -> dict[str, InspectorConfig]:
    """Inspectors that are trained, by name."""
    ours = preset("driple")
    return {
        "driple": ours,
        "driple: plain model only": changed(ours, epochs=1, learning_rate=1e-12),
        "driple: network only": changed(ours, plain=False),
        "paper": changed(preset("paper"), epochs=PAPER_EPOCHS),
    }


def figures(test: Examples, predicted: FloatArray) -> dict[str, dict[str, float | None]]:
    """NRMSE and MAPE of each target, each resource and all."""
    rows = list(scores(test.targets(), predicted).rows())
    return {
        "nrmse": {target: score.nrmse for target, score in rows},
        "mape": {target: score.mape for target, score in rows},
    }


def timed(what: Callable[[], Made]) -> tuple[Made, float]:
    """What it made, and the seconds that it took."""
    begin = time.perf_counter()
    made = what()
    return made, time.perf_counter() - begin


@dataclass(frozen=True)
class Race:
    """A training by the clock."""

    trained: Trained
    seconds: float
    """From examples to an inspector."""
    grouping: float
    """Of these, those in which ops became groups: the paper's datasets are of groups."""
    epochs: list[tuple[float, float]]
    """Of its first network, each: seconds since the beginning of all, preparation and plain model included; NRMSE of
    the validation rows."""

    def seconds_to(self, error: float) -> float | None:
        """To an epoch with this error or less, or None."""
        return next((seconds for seconds, found in self.epochs if found <= error), None)

    def betterings(self) -> list[tuple[float, float]]:
        """Of the epochs, those with a smaller error than all before."""
        return [
            (seconds, error)
            for place, (seconds, error) in enumerate(self.epochs)
            if all(error < before for _, before in self.epochs[:place])
        ]


def race(
    examples: Examples,
    config: InspectorConfig,
    split: str,
    seed: int,
    begin_from: Callable[[], Transfer] | None = None,
) -> Race:
    """Trains with a look at the clock at every epoch; to read what a transfer begins from takes time too."""
    epochs: list[tuple[float, float]] = []
    gc.collect()  # what others left behind is not cleared away on this one's time
    forget_wirings()
    FEATURE_CACHE.clear()
    begin = time.perf_counter()

    def watch(member: int, epoch: Epoch) -> None:
        if member == 0:
            epochs.append((time.perf_counter() - begin, epoch.row["val_nrmse"]))

    transfer = None if begin_from is None else begin_from()
    sides = [examples.side(split, side) for side in ("train", "val")]
    if transfer is None or transfer.source.preparation is None:
        featuriser = Featuriser(config.features, sides[0].recipe(config.grouping), config.loops)
    else:
        featuriser = transfer.source.preparation.featuriser
    _, grouping = timed(lambda: [featuriser.sample_of(item) for side in sides for item in side.items])
    trained = train_inspector(
        examples, config, split=split, seed=seed, watch=watch, transfer=transfer, featuriser=featuriser
    )
    return Race(trained, time.perf_counter() - begin, grouping, epochs)


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def overall(found: dict[str, Any]) -> float:
    """NRMSE over all targets."""
    return float(found["nrmse"]["all"])
