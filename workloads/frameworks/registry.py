"""Frameworks by name. A new one is a file beside this one, a line here, and an entry in contracts/strategy.py."""

from __future__ import annotations

from driple.contracts.errors import UnknownName
from driple.workloads.frameworks.base import TrainingFramework
from driple.workloads.frameworks.pytorch import PyTorch
from driple.workloads.frameworks.tensorflow import TensorFlow

FRAMEWORKS: dict[str, TrainingFramework] = {framework.name: framework for framework in (TensorFlow(), PyTorch())}


def framework_of(name: str) -> TrainingFramework:
    """The framework of that name."""
    if name not in FRAMEWORKS:
        raise UnknownName("framework", name, tuple(FRAMEWORKS))
    return FRAMEWORKS[name]
