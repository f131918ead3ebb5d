"""Small trainings for tests: seconds together, and enough to see what a long one does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import inspector_work as work

from driple.inspector.data.examples import Examples
from driple.inspector.model.model_config import InspectorConfig, NetworkConfig, TrainingConfig, changed
from driple.inspector.training.train_inspector import Trained, train_inspector

SMALL = InspectorConfig(
    grouping="uniform:4",
    network=NetworkConfig(hidden=6, depth="2"),
    training=TrainingConfig(epochs=4, patience=100, batch_size=8),
)
OPTIONS = (
    *("--set", "grouping=uniform:4", "--set", "network.hidden=6", "--set", "network.depth=2"),
    *("--epochs", "4", "--set", "training.patience=100", "--set", "training.batch_size=8"),
)
"""The same on a command line."""


def small(**choices: Any) -> InspectorConfig:
    """The small config with some choices made otherwise."""
    return changed(SMALL, **choices)


def trained(examples: Examples, config: InspectorConfig = SMALL, **options: Any) -> Trained:
    """An inspector of the examples."""
    return train_inspector(examples, config, **options)


def weights_of(folder: Path) -> bytes:
    """Of the inspector in a folder."""
    (found,) = folder.glob("model-*.safetensors")
    return found.read_bytes()


def rows(folder: Path) -> Examples:
    """The made-up zoo, read as an inspector does."""
    return work.examples(folder)
