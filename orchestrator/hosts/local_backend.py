"""This machine as the only host, without SSH."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, gettempdir

from driple.contracts.errors import BadInput
from driple.contracts.manifest import LOCAL
from driple.contracts.setting import CPU, Setting
from driple.orchestrator.config.experiment import Experiment
from driple.orchestrator.config.inventory import HostSpec, Link
from driple.orchestrator.hosts.registry import Backend, Cluster

_SCRATCH = "driple-hosts-"


class LocalBackend(Backend):
    """Tasks are processes of this machine."""

    def hosts_for(self, setting: Setting) -> tuple[HostSpec, ...]:
        if not setting.one_machine:
            raise BadInput(f"{setting} spans machines, and hosts is local; use hosts: lab, or a ...-pcie setting")
        # The GPUs of this machine are looked up when a run is prepared: worker i takes GPU i.
        gpus = {} if setting.device == CPU else {setting.device: tuple(range(setting.workers))}
        return (HostSpec(name="local", address="localhost", gpus=gpus),)

    @contextmanager
    def cluster(self, experiment: Experiment, *, accept_new_host_keys: bool) -> Iterator[Cluster]:
        gpus: dict[str, tuple[int, ...]] = {}
        for setting in experiment.settings:
            gpus |= dict(self.hosts_for(setting)[0].gpus)
        with this_machine({"local": None}, experiment, gpus) as cluster:
            yield cluster


@contextmanager
def this_machine(
    addresses: Mapping[str, str | None], experiment: Experiment, gpus: Mapping[str, tuple[int, ...]] | None = None
) -> Iterator[Cluster]:
    """Hosts of these names and addresses that all are this machine, each with a folder of its own."""
    from driple.orchestrator.attempt.data_network import Shaper
    from driple.orchestrator.hosts.local import LocalHost

    networks = {setting.network for setting in experiment.settings if not setting.one_machine}
    with _scratch() as folder:
        specs = {
            name: HostSpec(
                name=name,
                address=address or "localhost",
                python=sys.executable,
                work_dir=str(folder / name),
                gpus=gpus or {},
                networks={network: Link(address=address) for network in networks},
            )
            for name, address in addresses.items()
        }
        yield Cluster(kind=LOCAL, specs=specs, connect=lambda spec: LocalHost(spec.name), shaper=Shaper(), parallel=1)


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder for this process. Removes those of processes that were killed."""
    parent = Path(gettempdir())
    for left in parent.glob(f"{_SCRATCH}*"):
        owner = left.name[len(_SCRATCH) :].partition("-")[0]
        if not Path("/proc", owner).exists():
            rmtree(left, ignore_errors=True)
    with TemporaryDirectory(prefix=f"{_SCRATCH}{os.getpid()}-") as folder:
        yield Path(folder)
