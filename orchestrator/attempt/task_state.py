"""The state of a task during a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from driple.orchestrator.attempt.task_command import TaskPlace
from driple.orchestrator.hosts.agent_client import Station


@dataclass
class TaskState:
    """A task with its sampler. Changed only by the thread of the attempt."""

    task: str
    place: TaskPlace
    station: Station
    way: str
    """How it is started; see task_command.py."""
    command: str
    """Command line, for messages."""
    gpu: int | None
    traffic_source: str
    """`nic:eth0`, or `flows`."""
    pid: int | None = None
    over: bool = False
    exit_code: int | None = None
    ready: bool = False
    steps: int = 0
    moved: float = 0.0
    """Time of its last progress."""
    finished: Mapping[str, Any] = field(default_factory=dict)
    """Content of its finished.json."""
    sampler_pid: int | None = None
    sampler_ready: bool = False
    sampler_over: bool = False
    sampler_exit: int | None = None
    summary: dict[str, Any] = field(default_factory=dict)
    """Quality of every source, from the sampler."""

    @property
    def is_worker(self) -> bool:
        return self.task.startswith("worker:")

    @property
    def where(self) -> str:
        return f"{self.task} on {self.station.name}"

    @property
    def words(self) -> str:
        """Its own message about its end."""
        return str(self.finished.get("message") or "")
