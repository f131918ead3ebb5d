"""Links: a network namespace per host, and two bridges in the supervisor's, for data and for management."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from driple.orchestrator.lab import linux_calls, tools
from driple.orchestrator.lab.layout import (
    DATA_NIC,
    LINKS,
    MANAGEMENT_NIC,
    PREFIX,
    SUPERVISOR_ADDRESS,
    data_address,
    hardware_address,
    management_address,
    port_name,
)
from driple.orchestrator.lab.tools import Batch

BRIDGES = {"data": "br-data", "mgmt": "br-mgmt"}
_NICS = {"data": DATA_NIC, "mgmt": MANAGEMENT_NIC}


class Network:
    """Bridges and host interfaces. Lives in the supervisor's network namespace, never in the machine's."""

    def __init__(self) -> None:
        self._namespaces: dict[int, int] = {}
        _quieten()
        lines = ["link set lo up"]
        # A bridge without a fixed address takes that of a port, and another one when that host goes down: the other
        # hosts would send to the old address for some tens of seconds.
        lines += [
            f"link add {bridge} up address {hardware_address(0, link)} type bridge mcast_snooping 0"
            for link, bridge in BRIDGES.items()
        ]
        lines += [f"address add {SUPERVISOR_ADDRESS}/{PREFIX} dev {BRIDGES['mgmt']}"]
        tools.run(Batch("ip", lines))

    @property
    def plugged(self) -> tuple[int, ...]:
        return tuple(self._namespaces)

    def namespace(self, number: int) -> int:
        return self._namespaces[number]

    def plug(self, numbers: Iterable[int]) -> None:
        """Gives hosts a namespace each, with both interfaces up."""
        lines, inside = [], {}
        for number in numbers:
            namespace = self._namespaces[number] = linux_calls.new_network()
            with linux_calls.inside_network(namespace):
                _quieten()
                _write("ipv4/ip_unprivileged_port_start", "0")  # sshd of a plain user listens on port 22
            for link in LINKS:
                peer = f"name {_NICS[link]} address {hardware_address(number, link)}"
                where = f"netns /proc/{os.getpid()}/fd/{namespace}"
                port = f"{port_name(number, link)} up master {BRIDGES[link]}"
                lines.append(f"link add {port} type veth peer {peer} {where}")
            addresses = ((data_address(number), DATA_NIC), (management_address(number), MANAGEMENT_NIC))
            commands = [f"address add {address}/{PREFIX} dev {nic}" for address, nic in addresses]
            inside[number] = Batch("ip", commands + [f"link set {nic} up" for nic in ("lo", DATA_NIC, MANAGEMENT_NIC)])
        tools.run(Batch("ip", lines))
        self.run_inside(inside)

    def unplug(self, number: int) -> None:
        """Removes a host from both bridges, and its namespace; safe to call twice."""
        namespace = self._namespaces.pop(number, None)
        if namespace is None:
            return
        # Explicitly: the kernel removes interfaces only some time after the last user of a namespace has gone.
        with suppress(tools.ToolError):
            tools.run(Batch("ip", [f"link del {port_name(number, link)}" for link in LINKS]))
        os.close(namespace)

    def set_link(self, number: int, link: str, up: bool) -> None:
        """Cuts or restores a link at the bridge, so that the host only loses the carrier."""
        tools.run(Batch("ip", [f"link set {port_name(number, link)} {'up' if up else 'down'}"]))

    def run_inside(self, batches: Mapping[int, Batch]) -> None:
        started = []
        for number, batch in batches.items():
            with linux_calls.inside_network(self._namespaces[number]):
                started.append(tools.start(batch))
        failures = []
        for process in started:
            try:
                tools.finish(process)
            except tools.ToolError as failure:
                failures.append(failure)
        if failures:
            raise failures[0]


def _quieten() -> None:
    """Disables IPv6 on new links: its solicitations would count as traffic of the tasks."""
    _write("ipv6/conf/default/disable_ipv6", "1")


def _write(name: str, value: str) -> None:
    with suppress(FileNotFoundError):  # a kernel without IPv6
        (Path("/proc/sys/net") / name).write_text(value)
