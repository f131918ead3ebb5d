"""The same steps on many lab hosts: by our host pool, and by one `ssh` or `scp` process for each action.

Steps: connect, bring the agent and a spec, start a process, stop it, fetch a file. Ours starts the process through the
agent, which it has to start first. ssh and scp connect to the hosts directly, from within the lab's own network: the
lab's ssh-config would start a Python for every connection, which real hosts do not ask for.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from driple.contracts.protocol import requests
from driple.orchestrator.attempt.prepare import ask_each
from driple.orchestrator.config.inventory import HostSpec
from driple.orchestrator.hosts.agent_client import AgentClient
from driple.orchestrator.hosts.agent_file import AgentFile
from driple.orchestrator.hosts.host_pool import MANY, HostPool
from driple.orchestrator.hosts.ssh import SshHost
from driple.orchestrator.lab.lab_client import Lab

FETCHED_BYTES = 100_000
SPEC = "x" * 2000
LIMIT_S = 120.0
PROCESS = ("sleep", "600")
NAME = "benchmark"
OURS = "our host pool"
SSH = f"`ssh` and `scp`, {MANY} hosts at once"
SSH_ONE_BY_ONE = "`ssh` and `scp`, one host after the other"
BARE = f"one `ssh host true`, {MANY} hosts at once"
KEY_EXCHANGE = "curve25519-sha256@libssh.org"
"""What paramiko and sshd agree on. OpenSSH's own default costs several times as much time."""
Steps = dict[str, float]


class Laps:
    """Seconds of one step after the other."""

    def __init__(self) -> None:
        self.seconds: Steps = {}

    @contextmanager
    def lap(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - began


class Hosts:
    """A lab of many hosts, and how to reach some of them."""

    def __init__(self, lab: Lab, agent: AgentFile, folder: Path) -> None:
        self.lab = lab
        self.agent = agent
        self.folder = folder
        self._agent_file = folder / agent.file_name
        self._agent_file.write_bytes(agent.content)
        self._spec_file = folder / "spec.json"
        self._spec_file.write_text(SPEC)
        self._config = folder / "ssh_config"
        self._config.write_text(self._direct())
        self.cpu_ms: dict[int, list[Steps]] = {}
        """By number of hosts, of each time: CPU time of one host's share of our steps, by whose it is."""
        inside = ["nsenter", "--target", str(lab.supervisor_pid), "--net"]
        self._inside = inside if os.getuid() == 0 else [*inside, "--user", "--preserve-credentials"]

    def _direct(self) -> str:
        """The lab's ssh-config without the helper that makes its connections."""
        common = [line for line in self.lab.ssh_config.read_text().splitlines() if "Proxy" not in line]
        hosts = self.lab.describe()["hosts"]
        own = [f"Host {n}\n  HostName {h['management_address']}\n  HostKeyAlias {n}" for n, h in hosts.items()]
        return "\n".join([*own, *common, f"  KexAlgorithms {KEY_EXCHANGE}"]) + "\n"

    def clean(self) -> None:
        """Nothing of ours is on any host but the file that will be fetched."""
        script = f"rm -rf ~/.driple; head -c {FETCHED_BYTES} /dev/urandom > ~/fetched.bin"
        for_each(self.lab.names, MANY, lambda name: self._ssh(name, script))

    def do(self, name: str, count: int) -> Steps:
        """One contestant's steps."""
        if name == OURS:
            return self.ours(count)
        if name == BARE:
            return self.bare(count)
        return self.processes(count, 1 if name == SSH_ONE_BY_ONE else MANY)

    # ours

    def ours(self, count: int) -> Steps:
        """Our fleet, as a sweep uses it."""
        laps = Laps()
        names = self.lab.names[:count]
        specs = {name: self._spec(name) for name in names}
        fleet = HostPool(specs, self._connect, self.agent, "benchmark")
        before, controller_s = set(_on_hosts(self.agent.file_name)), time.process_time()
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            try:
                with laps.lap("connect, agent, daemon"):
                    clients = fleet.clients(names)
                with laps.lap("spec"):
                    ask(clients, requests.Write(path="runs/spec.json", text=SPEC))
                with laps.lap("start"):
                    process = requests.Start(name=NAME, argv=tuple(PROCESS), stderr="runs/log", limit_s=LIMIT_S)
                    ask(clients, process)
                with laps.lap("stop"):
                    ask(clients, requests.Stop(names=(NAME,), grace_s=5.0))
                with laps.lap("fetch"):
                    for_each(names, MANY, lambda name: clients[name].host.get("~/fetched.bin", Path(folder) / name))
            finally:
                there = _on_hosts(self.agent.file_name)
                with laps.lap("close"):
                    fleet.close()
            cpu = {"controller": 1000 * (time.process_time() - controller_s) / count, "sshd": 0.0, "daemon": 0.0}
            for pid in there.keys() - before:
                kind, milliseconds = there[pid]
                cpu[kind] += milliseconds / count
            self.cpu_ms.setdefault(count, []).append(cpu)
            assert {path.stat().st_size for path in Path(folder).iterdir()} == {FETCHED_BYTES}
        return laps.seconds

    def _spec(self, name: str) -> HostSpec:
        key = str(self.lab.key_file)
        return HostSpec(name=name, address=name, user=self.lab.user, identity_file=key, python=sys.executable)

    def _connect(self, spec: HostSpec) -> SshHost:
        connect = lambda: self.lab.connect(spec.name)  # noqa: E731
        return SshHost(spec, connect=connect, host_key=self.lab.host_key(spec.name))

    # one process for each action

    def bare(self, count: int) -> Steps:
        """A login on each and nothing else: what the lab's machine can do at best."""
        laps = Laps()
        with laps.lap("connect"):
            for_each(self.lab.names[:count], MANY, lambda name: self._ssh(name, "true"))
        return laps.seconds

    def processes(self, count: int, at_once: int = MANY) -> Steps:
        """One `ssh` or `scp` for each action, on so many hosts at once."""
        laps = Laps()
        names = self.lab.names[:count]
        pids: dict[str, str] = {}
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:

            def start(name: str) -> None:
                script = f"{' '.join(PROCESS)} > /dev/null 2>&1 < /dev/null & echo $!"
                pids[name] = self._ssh(name, script).strip()

            def stop(name: str) -> None:
                self._ssh(name, f"kill {pids[name]}; while kill -0 {pids[name]} 2>/dev/null; do sleep 0.01; done")

            steps: tuple[tuple[str, Callable[[str], object]], ...] = (
                ("connect", lambda name: self._ssh(name, "mkdir -p ~/.driple/runs")),
                ("agent", lambda name: self._scp(str(self._agent_file), f"{name}:.driple/")),
                ("spec", lambda name: self._scp(str(self._spec_file), f"{name}:.driple/runs/")),
                ("start", start),
                ("stop", stop),
                ("fetch", lambda name: self._scp(f"{name}:fetched.bin", f"{folder}/{name}")),
            )
            for label, action in steps:
                with laps.lap(label):
                    for_each(names, at_once, action)
            assert {path.stat().st_size for path in Path(folder).iterdir()} == {FETCHED_BYTES}
        return laps.seconds

    def _ssh(self, name: str, script: str) -> str:
        return self._run(["ssh", "-F", str(self._config), name, script])

    def _scp(self, source: str, target: str) -> str:
        return self._run(["scp", "-q", "-F", str(self._config), source, target])

    def _run(self, words: list[str]) -> str:
        quiet = subprocess.DEVNULL
        done = subprocess.run(
            [*self._inside, *words], check=True, timeout=LIMIT_S, stdin=quiet, stdout=subprocess.PIPE, text=True
        )
        return done.stdout


def _on_hosts(agent: str) -> dict[int, tuple[str, float]]:
    """Of each process of a login on this machine, the lab's hosts included: what it is, and its CPU time in ms."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has just ended
            line = (folder / "cmdline").read_bytes()
            kind = "daemon" if agent.encode() in line else "sshd" if line.startswith(b"sshd: ") else None
            if kind is not None:
                found[int(folder.name)] = kind, time.clock_gettime_ns((~int(folder.name) << 3) | 2) / 1e6
    return found


def ask(clients: Mapping[str, AgentClient], request: requests.Request[Any]) -> None:
    ask_each(clients, dict.fromkeys(clients, request))


def for_each(names: Sequence[str], at_once: int, action: Callable[[str], object]) -> None:
    with ThreadPoolExecutor(max_workers=min(at_once, len(names))) as pool:
        list(pool.map(action, names))
