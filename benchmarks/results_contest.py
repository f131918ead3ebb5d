"""What the parts of the results have in common: settings, contestants, and the figures of one prediction."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from driple.inspector.config import InspectorConfig, changed, preset
from driple.inspector.examples import Examples
from driple.inspector.scores import scores

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


def say(text: str) -> None:
    """Progress."""
    print(text, file=sys.stderr, flush=True)


def overall(found: dict[str, Any]) -> float:
    """NRMSE over all targets."""
    return float(found["nrmse"]["all"])
