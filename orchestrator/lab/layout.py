"""The plan of a lab, and its names, addresses and files. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from driple.contracts.errors import BadInput, UnknownName

MAX_HOSTS = 200
DATA_NIC = "eth0"
DATA_NETWORK = "10.71.0.0/16"
MANAGEMENT_NIC = "mgmt0"
LINKS = ("data", "mgmt")
SUPERVISOR_ADDRESS = "10.72.0.1"
PREFIX = 16
GROUPS_FILE = "control_groups.json"
"""In a lab's folder: the control groups that must be removed with it."""
NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


@dataclass(frozen=True)
class LabPlan:
    """The input of the supervisor."""

    hosts: int
    user: str  # the login: the user who creates the lab
    uid: int
    gid: int
    shell: str
    path: str  # PATH of a login
    rate_mbit: float | None = 1000.0  # of every data link, both ways; None for no limit
    disk_mb: int = 1024  # size of a host's own home
    clock_offsets_s: dict[str, float] = field(default_factory=dict)
    """By how much a host's monotonic clock is ahead of the machine's."""
    detached: bool = False  # outlives the process that started it
    cores_per_host: float | None = None  # fixed share of the processors of the tasks of a host; None for no share
    share_period_us: int = 5000  # a host has its share in every period
    pace_us: int | None = 250  # how often the kernel is made to account for what hosts have used; None: at its ticks
    bind_hosts: bool = True  # each host to one processor, if its share is at most one

    def __post_init__(self) -> None:
        if not 1 <= self.hosts <= MAX_HOSTS:
            raise BadInput(f"hosts: expected 1 to {MAX_HOSTS}, got {self.hosts}")
        if self.rate_mbit is not None and not 0 < self.rate_mbit <= 1_000_000:
            raise BadInput(f"rate_mbit: expected above 0 and at most 1000000, got {self.rate_mbit:g}")
        if not 1 <= self.disk_mb <= 1_000_000:
            raise BadInput(f"disk_mb: expected 1 to 1000000, got {self.disk_mb}")
        for name in self.clock_offsets_s:
            self.number(name)
        if self.cores_per_host is not None and not 0 < self.cores_per_host <= 4096:
            raise BadInput(f"cores_per_host: expected above 0 and at most 4096, got {self.cores_per_host:g}")
        if self.pace_us is not None and self.pace_us < 50:
            raise BadInput(f"pace_us: expected 50 or more, got {self.pace_us}")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"lab{number}" for number in range(1, self.hosts + 1))

    def number(self, name: str) -> int:
        """Counted from 1; raises BadInput with the nearest name."""
        if name not in self.names:
            raise UnknownName("lab host", name, self.names)
        return int(name.removeprefix("lab"))


def data_address(number: int) -> str:
    """On the shaped link."""
    return f"10.71.0.{10 + number}"


def management_address(number: int) -> str:
    """Where sshd listens."""
    return f"10.72.0.{10 + number}"


def port_name(number: int, link: str) -> str:
    """The bridge's end of a host's link, in the supervisor's namespace."""
    return f"{link}-lab{number}"


def hardware_address(number: int, link: str) -> str:
    """Fixed, so that neighbours recognise a host that was revived; number 0 is the supervisor."""
    return f"02:d1:00:{LINKS.index(link):02x}:00:{number:02x}"


class LabFiles:
    """Every path inside a lab's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan = folder / "plan.json"  # written by the client, read by the supervisor
        self.socket = folder / "control"  # the supervisor's Unix socket
        self.log = folder / "supervisor.log"
        self.key = folder / "key"  # the private key of a login; `.pub` is beside it
        self.home = folder / "home"
        """Every host mounts its own home here, so that all have the same path to it, as in a real cluster."""
        self.known_hosts = folder / "known_hosts"
        self.ssh_config = folder / "ssh_config"
        self.groups = folder / GROUPS_FILE

    def etc(self, name: str) -> Path:
        return self.folder / "etc" / name

    def host(self, name: str, file: str) -> Path:
        return self.folder / name / file
