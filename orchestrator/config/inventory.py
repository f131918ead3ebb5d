"""The hosts of an experiment, and the inventory file.

defaults: {user: driple, work_dir: ~/driple}       # for every host
hosts:
  gpu1: {gpus: {v100: 2}, networks: {1g: {address: 192.0.2.11, nic: eno1}}}
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from driple.contracts.errors import BadInput
from driple.contracts.quantity import ExpectedError
from driple.contracts.setting import CPU, PCIE, Setting
from driple.orchestrator.config.validation import (
    At,
    Faults,
    existing_file,
    integer,
    number,
    open_document,
    text,
)
from driple.orchestrator.hosts.registry import BACKENDS, DEFAULT, INVENTORY, backend

HOST_KEYS: dict[str, str] = {
    "address": "name or address to connect to; the host's name if left out, so that ~/.ssh/config can hold the rest",
    "user": "login; ~/.ssh/config or yours if left out",
    "port": "SSH port; ~/.ssh/config or 22 if left out",
    "identity_file": "private key; agent and ~/.ssh/config if left out",
    "gpus": "kind to number of GPUs, or to a list of their indices: {v100: 2} or {v100: [0, 1], titanrtx: [2]}",
    "python": "interpreter that has driple[workloads]; python3 if left out",
    "image": "container image to run tasks in, instead of python",
    "docker": "the program that runs images; docker if left out",
    "cpus": "of a task's container; all if left out",
    "memory": "of a task's container, as docker writes it (16g); all if left out",
    "work_dir": "folder on the host for specs, logs and traces on their way",
    "data_dir": "folder on the host with dataset files; synthetic input if left out",
    "networks": "network of a setting to {address, nic} on that network: {1g: {address: 192.0.2.11, nic: eno1}}",
}
NETWORK_KEYS: dict[str, str] = {"address": "the host's address on that network", "nic": "the interface that carries it"}
MAX_GPU = 255
_WAYS = {"python", "image"}


@dataclass(frozen=True, kw_only=True)
class Link:
    """Address and interface of a host on one network."""

    address: str | None = None
    nic: str | None = None


@dataclass(frozen=True, kw_only=True)
class HostSpec:
    """A machine that can run tasks. Fields as in HOST_KEYS."""

    name: str
    address: str
    user: str | None = None
    port: int | None = None
    identity_file: str | None = None
    gpus: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    python: str = "python3"
    image: str | None = None
    docker: str = "docker"
    cpus: float | None = None
    memory: str | None = None
    work_dir: str = "~/.driple"
    data_dir: str | None = None
    networks: Mapping[str, Link] = field(default_factory=dict)
    packet_keeper: str = ""
    """Unix socket on the host that passes packet sockets on; a lab sets it."""
    cpu_groups: tuple[str, ...] = ()
    """Files of control groups that its tasks join, so that they have a share of the processors; a lab sets it."""

    @property
    def agent_python(self) -> str:
        return "python3" if self.image else self.python

    def gpu_indices(self, device: str) -> tuple[int, ...]:
        """Its GPUs of that kind; none for `cpu`."""
        return tuple(self.gpus.get(device, ()))

    def is_on(self, network: str) -> bool:
        """Whether it is on that network. A host without networks is on every network."""
        return network == PCIE or not self.networks or network in self.networks

    def serves(self, setting: Setting) -> bool:
        return self.is_on(setting.network) and (setting.device == CPU or bool(self.gpu_indices(setting.device)))


@dataclass(frozen=True, kw_only=True)
class Inventory:
    """All hosts of an experiment."""

    kind: str  # name of a backend (hosts/registry.py)
    hosts: tuple[HostSpec, ...] = ()  # empty where the backend creates as many as a run needs

    def for_setting(self, setting: Setting) -> tuple[HostSpec, ...]:
        """The hosts that can take part in a run on that setting. Raises BadInput if the backend can never serve it."""
        if not self.hosts:
            return backend(self.kind).hosts_for(setting)
        return tuple(host for host in self.hosts if host.serves(setting))


def read_hosts(at: At, folder: Path) -> Inventory:
    """The value of an experiment's `hosts`: the name of a backend, or an inventory file beside the experiment."""
    name = at.one(text, DEFAULT)
    names = [kind for kind in BACKENDS if kind != INVENTORY]
    if name in names:
        return Inventory(kind=name)
    try:
        path = existing_file(folder, name)
    except BadInput as error:
        at.fault(f"expected {', '.join(names)} or an inventory file: {error}")
        return Inventory(kind=INVENTORY)
    return read_inventory(path, str(path), at.faults)


def read_inventory(path: Path, name: str, faults: Faults) -> Inventory:
    """Reads an inventory file; faults go to `faults`."""
    root = open_document(path, name, faults)
    if root is None:
        return Inventory(kind=INVENTORY)
    parts = root.keys(("defaults", "hosts"), required=("hosts",))
    defaults = parts["defaults"].keys(set(HOST_KEYS) - {"address"}) if "defaults" in parts else {}
    hosts: list[HostSpec] = []
    seen: dict[tuple[str, int | None], str] = {}
    for host_name, at in parts["hosts"].entries().items() if "hosts" in parts else ():
        own = {} if at.value is None else at.keys(HOST_KEYS)
        # `image` replaces a default `python`, and vice versa.
        own_way = bool(_WAYS & own.keys())
        inherited = {key: value for key, value in defaults.items() if not (own_way and key in _WAYS)}
        host = _read_host(host_name, at, {**inherited, **own})
        other = seen.setdefault((host.address, host.port), host_name)
        if other != host_name:
            at.fault(f"is the same machine as {other!r}: both are at {host.address!r}")
        hosts.append(host)
    if "hosts" in parts and isinstance(parts["hosts"].value, dict) and not hosts:
        parts["hosts"].fault("expected at least one host")
    return Inventory(kind=INVENTORY, hosts=tuple(hosts))


def _matching(pattern: str, expected: str) -> Callable[[object], str]:
    def parse(value: object) -> str:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ExpectedError(expected)
        return value

    return parse


# A host name, address or login, without characters that ssh or a shell could misread.
_word = _matching(r"[\w.:%@\[\]][\w.:%@\[\]+-]*", "a name or address without spaces, slashes and a leading dash")
_absolute = _matching(r"(?s)(/|~/).*", "a folder that begins with / or ~/")
_memory = _matching(r"[1-9][0-9]*[kmg]", "a number with k, m or g, such as 16g")


def _read_host(name: str, at: At, keys: Mapping[str, At]) -> HostSpec:
    if "python" in keys and "image" in keys:
        keys["image"].fault("a task runs in an image or with a python, not both")
    try:
        _word(name)
    except ExpectedError as error:
        at.fault(f"expected {error} as key")

    def optional(key: str, parse: Callable[[object], str] = text) -> str | None:
        return keys[key].one(parse, "") if key in keys else None

    return HostSpec(
        name=name,
        address=optional("address", _word) or name,
        user=optional("user", _word),
        port=keys["port"].one(integer(1, 65535), 22) if "port" in keys else None,
        identity_file=optional("identity_file"),
        gpus=_read_gpus(keys["gpus"]) if "gpus" in keys else {},
        python=optional("python") or "python3",
        image=optional("image"),
        docker=optional("docker") or "docker",
        cpus=keys["cpus"].one(number(0.01, 4096), 1.0) if "cpus" in keys else None,
        memory=optional("memory", _memory),
        work_dir=optional("work_dir", _absolute) or "~/.driple",
        data_dir=optional("data_dir"),
        networks=_read_networks(keys["networks"]) if "networks" in keys else {},
    )


def _read_gpus(at: At) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for kind, entry in at.entries().items():
        try:
            Setting(kind, 0, 1, "pcie")
        except BadInput:
            entry.fault("expected a GPU kind in lower case without spaces, as in a setting: v100, 2080ti, titanrtx")
        if isinstance(entry.value, list):
            found[kind] = entry.many(integer(0, MAX_GPU))
        else:
            found[kind] = tuple(range(entry.one(integer(1, MAX_GPU + 1), 1)))
    indices = [index for kind_indices in found.values() for index in kind_indices]
    if len(set(indices)) < len(indices):
        at.fault("one GPU cannot be of two kinds; say their indices, like {v100: [0, 1], titanrtx: [2]}")
    return found


def _read_networks(at: At) -> dict[str, Link]:
    found: dict[str, Link] = {}
    for network, entry in at.entries().items():
        try:
            if Setting(CPU, 1, 1, network).one_machine:
                raise ExpectedError("a link rate")
        except BadInput:
            entry.fault("expected the network of a setting as key: 100m, 1g, 40g")
        keys = entry.keys(NETWORK_KEYS)
        found[network] = Link(
            address=keys["address"].one(_word, "") if "address" in keys else None,
            nic=keys["nic"].one(_word, "") if "nic" in keys else None,
        )
    return found
