"""Manifest: `run.json`, the record of a run, its tasks, hosts and files."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

from driple.contracts.errors import BadInput, CorruptRun, shown
from driple.contracts.fingerprint import Fingerprint
from driple.contracts.json_values import from_plain, to_plain
from driple.contracts.run_dir import replacing
from driple.contracts.run_spec import RunSpec
from driple.contracts.setting import CPU

SCHEMA_VERSION = 1

RUNNING = "running"
SEALED = "sealed"
FAILED = "failed"
STATUSES: Tuple[str, ...] = (RUNNING, SEALED, FAILED)
SIMULATED = "simulated"  # kind of a host that does not exist: the run is a simulation
LOCAL = "local"  # kind of a host that is the controller's own machine, without a network of its own
WARM = "warm"  # a task that was forked from a process with the framework loaded
PYTHON = "python"  # a task that was started as a new process
CONTAINER = "container"  # a task that was started in a container
CONGESTION = "congestion"  # key of `network_done_by`
BY_ROUTE, AS_PROBED = "by route", "as probed"
"""Behind the congestion control there: it was set, or the probe of the links saw it."""


@dataclass(frozen=True)
class ClockProbe:
    """One comparison of a host's monotonic clock with the controller's: the best of many round trips."""

    host_ns: int  # the host's clock when it answered
    offset_ns: int  # the host's clock minus the controller's
    bound_ns: int  # maximum error of the offset: half the round trip


@dataclass(frozen=True)
class ClockFit:
    """Maps a host's monotonic clock to the controller's, linearly through two probes."""

    before: ClockProbe
    after: ClockProbe

    @property
    def bound_ns(self) -> int:
        return max(self.before.bound_ns, self.after.bound_ns)

    def to_controller(self, host_ns: int) -> int:
        """Converts a time of the host's clock. Extrapolates outside the probes."""
        span = self.after.host_ns - self.before.host_ns
        drift = (self.after.offset_ns - self.before.offset_ns) / span if span else 0.0
        return host_ns - self.before.offset_ns - round(drift * (host_ns - self.before.host_ns))


@dataclass(frozen=True)
class HostShare:
    """The fixed share of the machine's processors that a host of a lab had, and what enforced it."""

    cores: float
    period_ms: float  # the host has `cores` times this in every period
    made_by: str  # `cgroup v1` or `cgroup v2`
    core: Optional[int] = None  # the processor to which it was bound; None if to none
    pace_ms: Optional[float] = None  # how often the kernel was made to account for what the host has used
    pace_priority: str = ""  # of the process that did so: `fifo` or `normal`


@dataclass(frozen=True)
class HostRecord:
    """A host of the run, as described by its agent."""

    kind: str  # the backend: `ssh`, `lab`, `local` or `simulated`
    hostname: str
    kernel: str
    boot_id: str
    cores: int
    memory_bytes: int
    python: str  # version of the sampler's Python; the tasks' is in `versions`
    wall_clock_ahead_s: float = 0.0  # approximate offset of its wall clock; not used for alignment
    gpus: Tuple[str, ...] = ()  # names by index; empty if no GPU was needed
    fingerprint: Optional[Fingerprint] = None
    """How fast its machine is. None if it could not be measured, and then absent from the file."""
    share: Optional[HostShare] = None
    """None if it shared all processors with the other hosts of its machine, and then absent from the file."""


@dataclass(frozen=True)
class TaskRecord:
    """The record of a task."""

    task: str
    host: str
    exit_code: Optional[int] = None  # None if its end was not seen
    last_words: str = ""
    steps: int = 0  # training steps including warm-up; 0 for a server
    started_by: str = ""  # WARM, PYTHON, CONTAINER or SIMULATED
    traffic_source: Optional[str] = None
    """Source of its network columns: `nic:eth0`, `container:...`, or `flows` (sum of its TCP flows)."""
    quality: Dict[str, Any] = field(default_factory=dict)
    """Sampler quality per source: asked and real period, refresh period, missed ticks."""


@dataclass(frozen=True)
class Manifest:
    """The content of run.json."""

    run: RunSpec
    run_id: str
    status: str  # `running`, `sealed` or `failed`; only sealed runs are used
    schema_version: int = SCHEMA_VERSION
    attempt: int = 1  # number of the attempt that this directory holds
    tasks: Tuple[TaskRecord, ...] = ()
    hosts: Dict[str, HostRecord] = field(default_factory=dict)  # by name in the inventory
    clocks: Dict[str, ClockFit] = field(default_factory=dict)  # by host
    started_real_s: Optional[float] = None  # start of the attempt on the controller's wall clock, in seconds since 1970
    ended_real_s: Optional[float] = None
    versions: Dict[str, str] = field(default_factory=dict)  # of all software of the run
    git_commit: Optional[str] = None  # of driple, in a checkout; with `-dirty` after local changes
    measured_network: Dict[str, float] = field(default_factory=dict)  # measured rate and loss
    trained_with: Dict[str, str] = field(default_factory=dict)
    """What the workers say they used: versions, backend, topology, `gradient_bytes`. Absent from the file if empty."""
    network_done_by: Dict[str, str] = field(default_factory=dict)
    """Mechanism of each part of the condition: `{"rate": "tbf", "loss": "nft"}`. With what TCP used, also unasked."""
    checksums: Dict[str, str] = field(default_factory=dict)
    """SHA-256 of every other file, by path relative to the run directory."""
    failure: Optional[str] = None  # why it failed, in one line
    network_not_as_asked: Optional[str] = None
    """Why the run had another network than its setting: the lab could not be created. Absent from the file if None."""
    share_not_as_asked: Optional[str] = None
    """Why the hosts did not have the share that the run asks for. Absent from the file if None."""

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise BadInput(f"status: expected one of {', '.join(STATUSES)}, got {shown(self.status)}")
        if self.run_id != self.run.id:
            raise BadInput(f"run_id: {shown(self.run_id)} is not the identity of the run it holds ({self.run.id})")

    @property
    def congestion(self) -> Optional[str]:
        """The congestion control that TCP used between the hosts; None if it is not known."""
        used, _, how = self.network_done_by.get(CONGESTION, "").partition(" ")
        return used if how in (BY_ROUTE, AS_PROBED) else self.run.network.congestion

    @property
    def is_simulated(self) -> bool:
        """Whether the run was simulated: its hosts do not exist."""
        return any(host.kind == SIMULATED for host in self.hosts.values())

    @property
    def on_cpu(self) -> bool:
        """Whether its tasks computed on CPUs: on the setting's device `cpu`, and on simulated machines without GPUs."""
        if self.is_simulated:
            return not any(host.gpus for host in self.hosts.values())
        return self.run.setting.device == CPU

    def write(self, path: Path) -> None:
        value = to_plain(self)
        for name in ("network_not_as_asked", "share_not_as_asked", "trained_with"):
            if not value[name]:
                del value[name]  # earlier releases refuse keys that they do not know
        if self.run.cores_per_host is None:
            del value["run"]["cores_per_host"]
        for host in value["hosts"].values():
            for name in ("fingerprint", "share"):
                if host[name] is None:
                    del host[name]
        with replacing(path) as stream:
            json.dump(value, stream, indent=1, sort_keys=True)
            stream.write("\n")

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Reads and checks it. Raises CorruptRun if it is missing, truncated, inconsistent or of another schema."""
        value = _load(path)
        version = value.get("schema_version") if isinstance(value, dict) else None
        if version != SCHEMA_VERSION:
            raise CorruptRun(f"{path}: schema version {shown(version)}, this release reads {SCHEMA_VERSION}")
        try:
            return from_plain(cls, value)
        except BadInput as error:
            raise CorruptRun(f"{path}: {error}") from None


def network_as_specified(manifest: Manifest) -> bool:
    """Whether the tasks communicated over the network that the setting names, under the condition of the run."""
    return manifest.network_not_as_asked is None and not on_loopback(manifest)


def as_specified(manifest: Manifest) -> bool:
    """Whether the network of the tasks and the share of their hosts were as the run asks."""
    return network_as_specified(manifest) and manifest.share_not_as_asked is None


def on_loopback(manifest: Manifest) -> bool:
    """Whether tasks of a setting with a link rate ran as processes of one machine, over its loopback interface."""
    kinds = {host.kind for host in manifest.hosts.values()}
    return LOCAL in kinds and not manifest.run.setting.one_machine


def is_sealed(path: Path, run_id: str, *, any_network: bool = False) -> bool:
    """Whether `path` is the run.json of a sealed run; False for anything broken.

    `any_network` also accepts a run whose network, or share of processors, was not as specified.
    """
    # Reads a few keys only: a resume checks ten thousand of these files. The pipeline uses `Manifest.read`.
    try:
        value = _load(path)
    except CorruptRun:
        return False
    return (
        isinstance(value, dict)
        and value.get("schema_version") == SCHEMA_VERSION
        and value.get("status") == SEALED
        and value.get("run_id") == run_id
        and (any_network or (value.get("network_not_as_asked") is None and value.get("share_not_as_asked") is None))
    )


def _load(path: Path) -> Any:
    try:
        if path.exists() and not path.is_file():  # reading a pipe would block
            raise CorruptRun(f"{path}: not a regular file")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise CorruptRun(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise CorruptRun(f"{path}: not valid JSON (cut short?)") from None
