"""The three kinds of hosts, made ready for a sweep: an inventory over SSH, the lab, this machine."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, gettempdir
from typing import TYPE_CHECKING

from driple.contracts.errors import HostError, RunFailed
from driple.contracts.run_spec import NetworkCondition
from driple.contracts.setting import Setting
from driple.orchestrator.attempt.data_network import LOOPBACK, NoShaper, Shaper, TcShaper
from driple.orchestrator.attempt.failure import Hopeless
from driple.orchestrator.config.experiment import Experiment
from driple.orchestrator.config.inventory import HostSpec, Link
from driple.orchestrator.hosts.agent_client import Clients
from driple.orchestrator.hosts.base import Host

if TYPE_CHECKING:
    from driple.orchestrator.lab.lab_client import Lab

log = logging.getLogger(__name__)


_SCRATCH = "driple-hosts-"


@dataclass(frozen=True)
class Cluster:
    """Hosts that a sweep can use, and how."""

    kind: str
    """`ssh`, `lab` or `local`: what it is, which need not be what was asked for."""
    specs: Mapping[str, HostSpec]
    connect: Callable[[HostSpec], Host]
    shaper: Shaper
    parallel: int | None
    """Runs at the same time; None for as many as there are hosts for."""
    fallback: bool = False
    """Whether it stands in for a lab that could not be made."""


@contextmanager
def cluster_for(experiment: Experiment, *, accept_new_host_keys: bool = False) -> Iterator[Cluster]:
    """The hosts of an experiment; what was made for it is taken down at the end."""
    kind = experiment.inventory.kind
    if kind == "ssh":
        yield _over_ssh(experiment, accept_new_host_keys)
    elif kind == "local":
        with _this_machine({"local": None}, experiment) as cluster:
            yield cluster
    else:
        with _lab_or_local(experiment) as cluster:
            yield cluster


def _over_ssh(experiment: Experiment, accept_new: bool) -> Cluster:
    from driple.orchestrator.hosts.ssh import SshHost

    # A folder for each host also where they share one home.
    specs = {
        host.name: replace(host, work_dir=f"{host.work_dir.rstrip('/')}/{host.name}")
        for host in experiment.inventory.hosts
    }
    return Cluster(
        kind="ssh",
        specs=specs,
        connect=lambda spec: SshHost(spec, accept_new=accept_new),
        shaper=TcShaper(specs),
        parallel=None,
    )


@contextmanager
def _lab_or_local(experiment: Experiment) -> Iterator[Cluster]:
    from driple.orchestrator.lab.lab_client import Lab, LabImpossible

    count = max(len(experiment.inventory.for_setting(setting)) for setting in experiment.settings)
    rates = [setting.link_mbit for setting in experiment.settings if setting.link_mbit is not None]
    try:
        lab = Lab.start(hosts=count, rate_mbit=float(max(rates)) if rates else None)
    except LabImpossible as error:
        log.warning(
            "NO LAB: %s. All tasks run as plain processes of this machine and share its loopback: there is no link of "
            "%s between them, and what is measured of the network is not what the setting says. run.json says `local`.",
            error,
            ", ".join(str(setting) for setting in experiment.settings),
        )
        with _this_machine({f"lab{i + 1}": LOOPBACK for i in range(count)}, experiment) as cluster:
            yield replace(cluster, fallback=True)
        return
    with lab:
        yield lab_cluster(lab, experiment)


def lab_cluster(lab: Lab, experiment: Experiment) -> Cluster:
    """A lab's hosts: SSH hosts whose connections its keeper makes."""
    from driple.orchestrator.hosts.ssh import SshHost

    networks = {setting.network for setting in experiment.settings if not setting.one_machine}
    specs = {
        name: HostSpec(
            name=name,
            address=lab.data_address(name),
            user=lab.user,
            identity_file=str(lab.key_file),
            python=sys.executable,
            networks={network: Link(address=lab.data_address(name), nic=lab.data_nic) for network in networks},
        )
        for name in lab.names
    }

    def connect(spec: HostSpec) -> Host:
        lab.revive_host(spec.name)  # where it has died; a lab host has nobody else to switch it on
        return SshHost(spec, connect=lambda: lab.connect(spec.name), host_key=lab.host_key(spec.name))

    # Its hosts share this machine's cores: two runs at a time would measure each other.
    return Cluster(kind="lab", specs=specs, connect=connect, shaper=_LabShaper(lab), parallel=1)


class _LabShaper:
    """The lab's keeper makes conditions on all its links."""

    def __init__(self, lab: Lab) -> None:
        self._lab = lab

    def shape(self, condition: NetworkCondition, setting: Setting, stations: Clients) -> dict[str, str]:
        try:
            return dict(self._lab.shape(condition, float(setting.link_mbit or 0)))
        except HostError:
            raise
        except RunFailed as error:
            raise Hopeless(f"network condition {condition.label or 'of the link itself'}: {error}") from None

    def clear(self, stations: Clients) -> None:
        return None  # the links go with the lab

    def pairs_at_once(self, hosts: int) -> int:
        return 1  # all share this machine's cores


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder for this process. What one that was killed has left is removed."""
    parent = Path(gettempdir())
    for left in parent.glob(f"{_SCRATCH}*"):
        owner = left.name[len(_SCRATCH) :].partition("-")[0]
        if not Path("/proc", owner).exists():
            rmtree(left, ignore_errors=True)
    with TemporaryDirectory(prefix=f"{_SCRATCH}{os.getpid()}-") as folder:
        yield Path(folder)


@contextmanager
def _this_machine(addresses: Mapping[str, str | None], experiment: Experiment) -> Iterator[Cluster]:
    from driple.orchestrator.hosts.local import LocalHost

    gpus: dict[str, tuple[int, ...]] = {}
    if experiment.inventory.kind == "local":
        for setting in experiment.settings:
            gpus |= dict(experiment.inventory.for_setting(setting)[0].gpus)
    networks = {setting.network for setting in experiment.settings if not setting.one_machine}
    with _scratch() as folder:
        specs = {
            name: HostSpec(
                name=name,
                address=address or "localhost",
                python=sys.executable,
                work_dir=str(folder / name),
                gpus=gpus,
                networks={network: Link(address=address) for network in networks},
            )
            for name, address in addresses.items()
        }
        yield Cluster(
            kind="local", specs=specs, connect=lambda spec: LocalHost(spec.name), shaper=NoShaper(), parallel=1
        )
