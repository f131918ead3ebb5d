"""Simulated hosts: the machines of a setting as the simulator knows them. Nothing is connected or started on a host."""

from __future__ import annotations

from contextlib import AbstractContextManager

from driple.contracts.errors import BadInput
from driple.contracts.manifest import SIMULATED
from driple.contracts.setting import CPU, PUBLISHED, Setting
from driple.orchestrator.config.experiment import Experiment
from driple.orchestrator.config.inventory import HostSpec, Link
from driple.orchestrator.hosts.registry import Backend, Cluster


class SimulatedBackend(Backend):
    """As many machines as the paper had for its settings, else one for each task."""

    def hosts_for(self, setting: Setting) -> tuple[HostSpec, ...]:
        published = next((one.machines for one in PUBLISHED if one.setting == setting), len(setting.tasks))
        count = 1 if setting.one_machine else published
        gpus = {} if setting.device == CPU else {setting.device: tuple(range(setting.workers))}
        networks = {} if setting.one_machine else {setting.network: Link(address=None)}
        names = [f"simulated{number + 1}" for number in range(count)]
        return tuple(HostSpec(name=name, address=name, gpus=gpus, networks=networks) for name in names)

    def cluster(self, experiment: Experiment, *, accept_new_host_keys: bool) -> AbstractContextManager[Cluster]:
        raise BadInput(f"hosts of the kind {SIMULATED} cannot be connected")
