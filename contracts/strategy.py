"""Training strategies and frameworks: the facts that other packages need. The code is in workloads/.

A new one is an entry here and a file in workloads/strategies or workloads/frameworks, with a line in its registry.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Optional, Tuple

SERVER = "ps"
WORKER = "worker"
UPDATES: Tuple[str, ...] = ("sync", "async")


@dataclass(frozen=True)
class Strategy:
    """How the tasks of a job share their gradients."""

    name: str
    roles: Tuple[str, ...]
    updates: Tuple[str, ...]  # update modes that it offers
    frameworks: Tuple[str, ...]  # frameworks in which it is available

    @property
    def has_servers(self) -> bool:
        """Whether it needs parameter servers; else it has none."""
        return SERVER in self.roles

    def fault(self, servers: int) -> Optional[str]:
        """Why it cannot run with this number of parameter servers; None if it can."""
        if self.has_servers == bool(servers):
            return None
        return f"strategy {self.name} needs {'at least one server' if self.has_servers else 'no servers (p0)'}"


@dataclass(frozen=True)
class Framework:
    """A deep-learning framework."""

    name: str
    title: str
    """As it is written in messages."""
    packages: Dict[str, Tuple[str, ...]]
    """Modules that a host must have to train with it, each with the distributions that can contain it."""


FRAMEWORKS: Dict[str, Framework] = {
    framework.name: framework
    for framework in (
        Framework(
            "tensorflow",
            "TensorFlow",
            {"tensorflow": ("tensorflow", "tensorflow-cpu", "tensorflow-gpu", "tf-nightly"), "tf_keras": ("tf-keras",)},
        ),
    )
}

STRATEGIES: Dict[str, Strategy] = {
    strategy.name: strategy
    for strategy in (
        Strategy("ps", (SERVER, WORKER), updates=UPDATES, frameworks=("tensorflow",)),
        Strategy("allreduce", (WORKER,), updates=("sync",), frameworks=("tensorflow",)),
    )
}


def default_strategy(servers: int) -> str:
    """The strategy of a setting with this number of parameter servers, if none is named."""
    return next(name for name, strategy in STRATEGIES.items() if strategy.has_servers == bool(servers))
