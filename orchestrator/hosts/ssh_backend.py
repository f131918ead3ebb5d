"""The hosts of an inventory file, over SSH."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from driple.orchestrator.config.experiment import Experiment
from driple.orchestrator.hosts.registry import Backend, Cluster


class SshBackend(Backend):
    """Machines that exist already."""

    @contextmanager
    def cluster(self, experiment: Experiment, *, accept_new_host_keys: bool) -> Iterator[Cluster]:
        from driple.orchestrator.attempt.data_network import TcShaper
        from driple.orchestrator.hosts.ssh import SshHost

        # One folder per host, because hosts may share a home directory.
        specs = {
            host.name: replace(host, work_dir=f"{host.work_dir.rstrip('/')}/{host.name}")
            for host in experiment.inventory.hosts
        }
        yield Cluster(
            kind="ssh",
            specs=specs,
            connect=lambda spec: SshHost(spec, accept_new=accept_new_host_keys),
            shaper=TcShaper(specs),
            parallel=None,
        )
