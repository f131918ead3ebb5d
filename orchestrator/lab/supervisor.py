"""The supervisor of a lab: creates the hosts and serves clients.

lab_start.py starts it under `unshare` as PID 1 of the lab's PID namespace, so the kernel ends all hosts with it. It
ends when its owner has ended.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from driple.contracts.protocol.capture_lines import PACKET_SOCKETS
from driple.orchestrator.lab import host_process, linux_calls, mounts, sshd
from driple.orchestrator.lab.bridges import Network
from driple.orchestrator.lab.control_messages import Passed
from driple.orchestrator.lab.control_server import Server
from driple.orchestrator.lab.host_shares import HostShares
from driple.orchestrator.lab.lab_folder import name_of
from driple.orchestrator.lab.layout import LabFiles, LabPlan, data_address, management_address
from driple.orchestrator.lab.shaping import Shape, Shaper


class Supervisor:
    """The hosts and links of a lab, and the actions on them."""

    def __init__(self, plan: LabPlan, files: LabFiles) -> None:
        self._plan, self._files = plan, files
        self._first: dict[str, int] = {}  # PID of the first process of every host that was not killed
        self._links: dict[str, dict[str, bool]] = {name: {"data": True, "mgmt": True} for name in plan.names}
        mounts.mount_lab_files(plan, files)
        self._network = Network()
        self._shaper = Shaper(self._network)
        self._shares = HostShares(plan, files, files.folder.name)
        self._keys = sshd.make_keys(plan, files)
        sshd.configure(plan, files)
        files.known_hosts.write_text(sshd.known_hosts(self._keys))
        files.ssh_config.write_text(sshd.client_config(plan, files, name_of(files.folder)))

    def up(self) -> None:
        self._boot(self._plan.names)
        self._shaper.apply(Shape(self._plan.rate_mbit))

    def end(self) -> None:
        self._shaper.end()
        for pid in self._first.values():
            if host_process.alive(pid):
                os.kill(pid, signal.SIGKILL)  # all of them, before waiting for the first
        for pid in self._first.values():
            host_process.end(pid)
        self._shares.end()

    def _boot(self, names: Sequence[str]) -> None:
        self._network.plug(self._plan.number(name) for name in names)
        booting = [
            host_process.start(self._plan, self._files, name, self._network.namespace(self._plan.number(name)))
            for name in names
        ]
        failures = []
        for each in booting:
            try:
                self._first[each.name] = host_process.finish(each, self._files)
            except host_process.BootError as failure:
                failures.append(failure)
        if failures:
            raise failures[0]

    # Requests of clients.

    def describe(self, _: Mapping[str, Any]) -> object:
        hosts = {
            name: {
                "data_address": data_address(number),
                "management_address": management_address(number),
                "host_key": self._keys[name],
                "up": name in self._first and host_process.alive(self._first[name]),
                "links": self._links[name],
            }
            for number, name in enumerate(self._plan.names, start=1)
        }
        shape = {"condition": asdict(self._shaper.now), "how": self._shaper.how}
        return {"plan": asdict(self._plan), "hosts": hosts, "shape": shape, "shares": self._shares.describe()}

    def shape(self, request: Mapping[str, Any]) -> object:
        return self._shaper.apply(Shape(**request["shape"]))

    def set_link(self, request: Mapping[str, Any]) -> object:
        name, link, up = request["host"], request["link"], request["up"]
        self._links[name][link] = up
        if self._plan.number(name) in self._network.plugged:
            self._network.set_link(self._plan.number(name), link, up)
        return None

    def kill_host(self, request: Mapping[str, Any]) -> object:
        """Ends a host; if `silent`, after its links, so that it cannot close its connections."""
        name = request["host"]
        number = self._plan.number(name)
        if request["silent"]:
            self._network.unplug(number)
        pid = self._first.pop(name, None)
        if pid is not None:
            host_process.end(pid)
        self._network.unplug(number)
        return None

    def revive_host(self, request: Mapping[str, Any]) -> object:
        name = request["host"]
        if name in self._first and host_process.alive(self._first[name]):
            return None
        self._first.pop(name, None)
        number = self._plan.number(name)
        self._network.unplug(number)
        self._boot([name])
        self._shaper.again(number)
        for link, up in self._links[name].items():
            if not up:
                self._network.set_link(number, link, up)
        return None

    def packet_sockets(self, request: Mapping[str, Any]) -> object:
        """Two packet sockets of a host: where the user is not root, a host itself may not open them."""
        with linux_calls.inside_network(self._network.namespace(self._plan.number(request["host"]))):
            return Passed([socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) for _ in range(2)])

    def serve(self, lifelines: Sequence[int]) -> object:
        actions = {
            each.__name__: each for each in (self.describe, self.shape, self.set_link, self.kill_host, self.revive_host)
        }
        actions[PACKET_SOCKETS] = self.packet_sockets

        def address(name: str) -> tuple[str, int]:
            return management_address(self._plan.number(name)), sshd.PORT

        server = Server(self._files.socket, actions, address, lifelines)
        _report({"ready": True})
        return server.serve()


def _report(message: object) -> None:
    """Writes the one line that lab_start.py waits for."""
    os.write(1, json.dumps(message).encode() + b"\n")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def main(arguments: Sequence[str]) -> int:
    """Runs a lab. Arguments: the folder, then the inherited descriptors: the folder's lock and the lifelines."""
    folder, *numbers = arguments
    descriptors = [int(number) for number in numbers]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # no process of a host may keep the lab alive
    os.umask(0o077)
    os.chdir("/")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    files = LabFiles(Path(folder))
    supervisor = None
    waiting = None
    try:
        supervisor = Supervisor(LabPlan(**json.loads(files.plan.read_text())), files)
        supervisor.up()
        waiting = supervisor.serve(descriptors[1:])
    except Exception as error:
        _report({"failed": str(error) or type(error).__name__})
        raise
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        if supervisor is not None:
            supervisor.end()
        shutil.rmtree(files.folder, ignore_errors=True)
        del waiting  # closing it tells the client that the lab has ended
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
