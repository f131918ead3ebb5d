"""Manifest: `run.json`, which says what a run was, how it went and what it left."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Dict, Optional, Tuple

from driple.contracts.errors import BadInput, CorruptRun, shown
from driple.contracts.plain import from_plain, to_plain
from driple.contracts.rundir import replacing
from driple.contracts.runspec import RunSpec

SCHEMA_VERSION = 1

RUNNING = "running"
SEALED = "sealed"
FAILED = "failed"
STATUSES: Tuple[str, ...] = (RUNNING, SEALED, FAILED)


@dataclass(frozen=True)
class ClockFit:
    """How a host's monotonic clock maps to the controller's: `controller = host - offset`, between probes linearly."""

    offset_before_ns: int
    offset_after_ns: int
    bound_ns: int
    """The error is at most this: half the least round trip."""


@dataclass(frozen=True)
class TaskRecord:
    """How one task went."""

    task: str
    host: str
    exit_code: Optional[int] = None
    """None when it was never seen to end."""
    traffic_source: Optional[str] = None
    """Where its network columns come from: `nic:eth0`, `container:...`, or `flows` (summed TCP flows)."""
    quality: Dict[str, Any] = field(default_factory=dict)
    """Sampler quality per source: asked and real period, refresh period, missed ticks."""


@dataclass(frozen=True)
class Manifest:
    """All that a reader of a run directory needs to know before it opens another file."""

    run: RunSpec
    run_id: str
    status: str
    """`running`, `sealed` or `failed`; only a sealed run is used."""
    schema_version: int = SCHEMA_VERSION
    attempt: int = 1
    """Which attempt this directory holds; attempts are never mixed."""
    tasks: Tuple[TaskRecord, ...] = ()
    clocks: Dict[str, ClockFit] = field(default_factory=dict)
    """By host."""
    versions: Dict[str, str] = field(default_factory=dict)
    """Of everything that took part."""
    git_commit: Optional[str] = None
    measured_network: Dict[str, float] = field(default_factory=dict)
    """Rate and loss as probed, not as asked."""
    checksums: Dict[str, str] = field(default_factory=dict)
    """SHA-256 of every other file, by path relative to the run directory."""
    failure: Optional[str] = None
    """Why it failed, in one line."""

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise BadInput(f"status: expected one of {', '.join(STATUSES)}, got {shown(self.status)}")
        if self.run_id != self.run.id:
            raise BadInput(f"run_id: {shown(self.run_id)} is not the identity of the run it holds ({self.run.id})")

    def write(self, path: Path) -> None:
        """Writes it whole or not at all."""
        with replacing(path) as stream:
            json.dump(to_plain(self), stream, indent=1, sort_keys=True)
            stream.write("\n")

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Reads and checks it.

        Raises:
            CorruptRun: the file is missing, cut short, of another schema version, or not what it says.
        """
        value = _load(path)
        version = value.get("schema_version") if isinstance(value, dict) else None
        if version != SCHEMA_VERSION:
            raise CorruptRun(f"{path}: schema version {shown(version)}, this release reads {SCHEMA_VERSION}")
        try:
            return from_plain(cls, value)
        except BadInput as error:
            raise CorruptRun(f"{path}: {error}") from None


def is_sealed(path: Path, run_id: str) -> bool:
    """Whether `path` is the manifest of a sealed run of that identity; False for anything missing or broken.

    A glance and not a check: a resume looks at ten thousand of these. The pipeline reads each with `Manifest.read`.
    """
    try:
        value = _load(path)
    except CorruptRun:
        return False
    return (
        isinstance(value, dict)
        and value.get("schema_version") == SCHEMA_VERSION
        and value.get("status") == SEALED
        and value.get("run_id") == run_id
    )


def _load(path: Path) -> Any:
    try:
        if path.exists() and not path.is_file():  # a pipe would be read for ever
            raise CorruptRun(f"{path}: not a regular file")
        return json.loads(path.read_bytes())
    except OSError as error:
        raise CorruptRun(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise CorruptRun(f"{path}: not valid JSON (cut short?)") from None
