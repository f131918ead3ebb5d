"""The wires: a namespace per host, and two bridges in the supervisor's own, one for data and one for management."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from driple.orchestrator.lab import linux_calls, tools
from driple.orchestrator.lab.layout import (
    DATA_NIC,
    KEEPER_ADDRESS,
    LINKS,
    MANAGEMENT_NIC,
    PREFIX,
    data_address,
    hardware_address,
    management_address,
    port_name,
)
from driple.orchestrator.lab.tools import Batch

_BRIDGES = {"data": "br-data", "mgmt": "br-mgmt"}
_NICS = {"data": DATA_NIC, "mgmt": MANAGEMENT_NIC}


class Network:
    """Bridges and hosts' interfaces. Made and used in the supervisor's network namespace, never in the machine's."""

    def __init__(self) -> None:
        self._namespaces: dict[int, int] = {}
        _quieten()
        lines = ["link set lo up"]
        # A bridge without an address of its own has that of a port, and another one when that port's host goes: the
        # other hosts would send to the old one until they ask again, some tens of seconds.
        lines += [
            f"link add {bridge} up address {hardware_address(0, link)} type bridge mcast_snooping 0"
            for link, bridge in _BRIDGES.items()
        ]
        lines += [f"address add {KEEPER_ADDRESS}/{PREFIX} dev {_BRIDGES['mgmt']}"]
        tools.run(Batch("ip", lines))

    @property
    def plugged(self) -> tuple[int, ...]:
        """Numbers of the hosts that have their interfaces."""
        return tuple(self._namespaces)

    def namespace(self, number: int) -> int:
        """Descriptor of a host's network namespace."""
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
                port = f"{port_name(number, link)} up master {_BRIDGES[link]}"
                lines.append(f"link add {port} type veth peer {peer} {where}")
            inside[number] = Batch(
                "ip",
                [
                    "link set lo up",
                    f"address add {data_address(number)}/{PREFIX} dev {DATA_NIC}",
                    f"address add {management_address(number)}/{PREFIX} dev {MANAGEMENT_NIC}",
                    f"link set {DATA_NIC} up",
                    f"link set {MANAGEMENT_NIC} up",
                ],
            )
        tools.run(Batch("ip", lines))
        self.run_inside(inside)

    def unplug(self, number: int) -> None:
        """Takes a host off both bridges and forgets its namespace; safe to call twice."""
        namespace = self._namespaces.pop(number, None)
        if namespace is None:
            return
        # By name and at once: the kernel takes interfaces down some time after the last user of a namespace is gone.
        with suppress(tools.ToolError):
            tools.run(Batch("ip", [f"link del {port_name(number, link)}" for link in LINKS]))
        os.close(namespace)

    def set_link(self, number: int, link: str, up: bool) -> None:
        """Pulls the cable, or puts it back: at the bridge's end, so that the host only loses the carrier."""
        tools.run(Batch("ip", [f"link set {port_name(number, link)} {'up' if up else 'down'}"]))

    def run_inside(self, batches: Mapping[int, Batch]) -> None:
        """Runs a batch inside each host's network namespace, side by side."""
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
    """No IPv6 on links to come: its solicitations would be counted as the tasks' traffic. `lo` keeps its own."""
    _write("ipv6/conf/default/disable_ipv6", "1")


def _write(name: str, value: str) -> None:
    with suppress(FileNotFoundError):  # a kernel without IPv6
        (Path("/proc/sys/net") / name).write_text(value)
