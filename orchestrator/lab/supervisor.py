"""The supervisor: the first process of the lab's namespaces. It makes the hosts, serves clients, and takes all with it.

Started by `launch.py` under `unshare`, as PID 1 of the lab's PID namespace. So whatever ends it, the kernel ends all
hosts with it; and it ends itself when its owner is gone.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from driple.orchestrator.lab import host_process, mounts, ssh_config, sshd
from driple.orchestrator.lab.bridges import Network
from driple.orchestrator.lab.control_server import Server
from driple.orchestrator.lab.lab_folder import name_of
from driple.orchestrator.lab.layout import (
    LabFiles,
    LabPlan,
    data_address,
    management_address,
)
from driple.orchestrator.lab.shaping import Shape, Shaper


class Supervisor:
    """The lab's hosts and links, and what may be done to them."""

    def __init__(self, plan: LabPlan, files: LabFiles) -> None:
        self._plan, self._files = plan, files
        self._first: dict[str, int] = {}
        """PID of the first process of every host that was not killed."""
        self._links: dict[str, dict[str, bool]] = {name: {"data": True, "mgmt": True} for name in plan.names}
        mounts.mount_lab_files(plan, files)
        self._network = Network()
        self._shaper = Shaper(self._network)
        self._keys = sshd.make_keys(plan, files)
        sshd.configure(plan, files)
        files.known_hosts.write_text(ssh_config.known_hosts(self._keys))
        files.ssh_config.write_text(ssh_config.text(plan, files, name_of(files.folder)))

    def up(self) -> None:
        """Brings all hosts up."""
        self._boot(self._plan.names)
        self._shaper.apply(Shape(self._plan.rate_mbit))

    def end(self) -> None:
        """Ends every host."""
        for pid in self._first.values():
            if host_process.alive(pid):
                os.kill(pid, signal.SIGKILL)  # all at once, before the first is waited for
        for pid in self._first.values():
            host_process.end(pid)

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

    # What clients may ask for.

    def describe(self, _: Mapping[str, Any]) -> object:
        """All that a client needs to know of the lab."""
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
        return {"plan": asdict(self._plan), "hosts": hosts, "shape": shape}

    def shape(self, request: Mapping[str, Any]) -> object:
        """Replaces what is done to the data links."""
        return self._shaper.apply(Shape(**request["shape"]))

    def set_link(self, request: Mapping[str, Any]) -> object:
        """Cuts or restores a link."""
        name, link, up = request["host"], request["link"], request["up"]
        self._links[name][link] = up
        if self._plan.number(name) in self._network.plugged:
            self._network.set_link(self._plan.number(name), link, up)
        return None

    def kill_host(self, request: Mapping[str, Any]) -> object:
        """A power cut: the host falls silent, then its processes are gone."""
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
        """Brings a host up that was killed or has died; one that is up stays as it is."""
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

    def serve(self, lifelines: Sequence[int]) -> object:
        """Answers clients until the lab is to end."""
        actions = {
            each.__name__: each for each in (self.describe, self.shape, self.set_link, self.kill_host, self.revive_host)
        }

        def address(name: str) -> tuple[str, int]:
            return management_address(self._plan.number(name)), sshd.PORT

        server = Server(self._files.socket, actions, address, lifelines)
        _report({"ready": True})
        return server.serve()


def _report(message: object) -> None:
    """The one line that the starter waits for."""
    os.write(1, json.dumps(message).encode() + b"\n")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def main(arguments: Sequence[str]) -> int:
    """Runs a lab.

    Args:
        arguments: the lab's folder, and the numbers of inherited descriptors: first the folder's lock, which is held
            as long as the lab lives, then the lifelines.
    """
    folder, *numbers = arguments
    descriptors = [int(number) for number in numbers]
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)  # no process of a host may keep a lab alive
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
        del waiting  # the client that asked for the end learns by this that it is done
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
