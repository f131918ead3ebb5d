"""Host backends: where the hosts of an experiment come from. To add one, write its file and add a line to BACKENDS."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from driple.contracts.manifest import HostShare
    from driple.contracts.setting import Setting
    from driple.orchestrator.attempt.data_network import Shaper
    from driple.orchestrator.config.experiment import Experiment
    from driple.orchestrator.config.inventory import HostSpec
    from driple.orchestrator.hosts.base import Host

INVENTORY = "ssh"
"""The backend of hosts that an inventory file lists. An experiment selects every other one by its name."""
LAB = "lab"
DEFAULT = LAB
BACKENDS: dict[str, str] = {
    "ssh": "driple.orchestrator.hosts.ssh_backend:SshBackend",
    "lab": "driple.orchestrator.hosts.lab_backend:LabBackend",
    "local": "driple.orchestrator.hosts.local_backend:LocalBackend",
    "simulated": "driple.orchestrator.hosts.simulated_backend:SimulatedBackend",
}
"""Module and class by name; imported when used, because a backend may need a library of its own."""


@dataclass(frozen=True)
class Cluster:
    """The hosts of a sweep, ready to be connected."""

    kind: str
    """Name of the backend that they come from, which run.json records. After a fallback it is not the one asked for."""
    specs: Mapping[str, HostSpec]
    connect: Callable[[HostSpec], Host]
    shaper: Shaper
    parallel: int | None  # runs at the same time; None for as many as there are hosts for
    fallback_reason: str | None = None
    """Why these hosts replace those that were asked for, without a network between them."""
    shares: Mapping[str, HostShare] = field(default_factory=dict)
    """By host, the fixed share of processors that it has."""
    share_fault: str | None = None
    """Why the hosts do not have the share that was asked for; None if they have, or none was."""


class Backend(ABC):
    """One way to get hosts."""

    one_condition = False
    """Whether all links share one network condition, so that parallel runs cannot have different ones."""

    def hosts_for(self, setting: Setting) -> tuple[HostSpec, ...]:
        """The hosts that it would create, for the plan. Raises BadInput if it can never serve that setting."""
        return ()

    @abstractmethod
    def cluster(self, experiment: Experiment, *, accept_new_host_keys: bool) -> AbstractContextManager[Cluster]:
        """Creates the hosts of an experiment, and removes at the end what it created."""


def backend(kind: str) -> Backend:
    """The backend of that name."""
    module, _, name = BACKENDS[kind].partition(":")
    found: Backend = getattr(import_module(module), name)()
    return found
