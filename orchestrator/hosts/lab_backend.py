"""The lab: hosts in network namespaces of this machine. Where it cannot be created, processes on loopback."""

from __future__ import annotations

import logging
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from driple.contracts.errors import BadInput, HostError, RunFailed
from driple.contracts.run_spec import NetworkCondition
from driple.contracts.setting import CPU, Setting
from driple.orchestrator.config.experiment import Experiment
from driple.orchestrator.config.inventory import HostSpec, Link
from driple.orchestrator.hosts.registry import Backend, Cluster

if TYPE_CHECKING:
    from driple.orchestrator.attempt.data_network import Shaper
    from driple.orchestrator.hosts.agent_client import Clients
    from driple.orchestrator.hosts.base import Host
    from driple.orchestrator.lab.lab_client import Lab

log = logging.getLogger(__name__)


class LabBackend(Backend):
    """A lab for the time of the sweep, with a host for each task of the largest setting."""

    one_condition = True

    def hosts_for(self, setting: Setting) -> tuple[HostSpec, ...]:
        if setting.device != CPU:
            raise BadInput(
                f"the lab has no {setting.device}; use a cpu-... setting, an inventory of real hosts, or --simulate"
            )
        count = 1 if setting.one_machine else len(setting.tasks)
        return tuple(HostSpec(name=f"lab{i + 1}", address=f"lab{i + 1}") for i in range(count))

    @contextmanager
    def cluster(self, experiment: Experiment, *, accept_new_host_keys: bool) -> Iterator[Cluster]:
        from driple.orchestrator.attempt.data_network import LOOPBACK
        from driple.orchestrator.hosts.local_backend import this_machine
        from driple.orchestrator.lab.lab_client import Lab, LabUnavailableError

        count = max(len(self.hosts_for(setting)) for setting in experiment.settings)
        rates = [setting.link_mbit for setting in experiment.settings if setting.link_mbit is not None]
        share = _share(experiment, count)
        try:
            lab = Lab.start(hosts=count, rate_mbit=float(max(rates)) if rates else None, **share)
        except LabUnavailableError as error:
            log.warning(
                "NO LAB: %s. All tasks run as processes of this machine and communicate over its loopback interface, "
                "not over the links of %s. run.json records it, and datasets leave these runs out.",
                error,
                ", ".join(map(str, experiment.settings)),
            )
            with this_machine({f"lab{i + 1}": LOOPBACK for i in range(count)}, experiment) as cluster:
                yield replace(cluster, fallback_reason=str(error), share_fault=str(error) if share else None)
            return
        with lab:
            if lab.share_fault is not None:
                log.warning(
                    "NO SHARE OF PROCESSORS: %s. All hosts share all processors. run.json records it, and datasets "
                    "leave these runs out.",
                    lab.share_fault,
                )
            yield lab_cluster(lab, experiment)


def _share(experiment: Experiment, hosts: int) -> dict[str, Any]:
    """Arguments of Lab.start. Raises BadInput if this machine has fewer processors than the hosts would."""
    from driple.orchestrator.lab.share_period import share_period_us

    cores = experiment.cores_per_host
    if cores is None:
        return {}
    there = len(os.sched_getaffinity(0))
    if hosts * cores > there:
        raise BadInput(
            f"{experiment.source}: cores_per_host: {hosts} hosts of {cores:g} need {hosts * cores:g} processors, and "
            f"this machine has {there}; at most {math.floor(100 * there / hosts) / 100:g}"
        )
    hz = experiment.measurement.sampling_hz
    return {"cores_per_host": cores, "share_period_us": share_period_us(hz, cores)}


def lab_cluster(lab: Lab, experiment: Experiment) -> Cluster:
    """The hosts of a running lab: SSH hosts whose connections its supervisor opens."""
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
            packet_keeper=str(lab.control_socket),
            cpu_groups=lab.share_files(name),
        )
        for name in lab.names
    }

    def connect(spec: HostSpec) -> Host:
        lab.revive_host(spec.name)  # if it has died: nobody else restarts a lab host
        return SshHost(spec, connect=lambda: lab.connect(spec.name), host_key=lab.host_key(spec.name))

    # The hosts share the cores of this machine: two runs at a time would measure each other.
    return Cluster(
        kind="lab",
        specs=specs,
        connect=connect,
        shaper=_shaper(lab),
        parallel=1,
        shares=lab.shares,
        share_fault=lab.share_fault,
    )


def _shaper(lab: Lab) -> Shaper:
    """The supervisor of the lab sets the condition of all links, which are removed with the lab."""
    from driple.orchestrator.attempt.data_network import Shaper
    from driple.orchestrator.attempt.failure import PermanentError

    class LabShaper(Shaper):
        def shape(self, condition: NetworkCondition, setting: Setting, clients: Clients) -> dict[str, str]:
            try:
                return dict(lab.shape(condition, float(setting.link_mbit or 0)))
            except HostError:
                raise
            except RunFailed as error:
                raise PermanentError(f"network condition {condition.label or 'of the link itself'}: {error}") from None

    return LabShaper()
