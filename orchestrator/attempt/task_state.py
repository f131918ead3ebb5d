"""What the controller knows of a task while a run goes on."""

from __future__ import annotations

from dataclasses import dataclass

from driple.contracts.formats.task_files import Finished
from driple.contracts.protocol.sampler_lines import SamplerSummary
from driple.orchestrator.attempt.task_command import TaskPlace
from driple.orchestrator.hosts.agent_client import AgentClient


@dataclass
class TaskState:
    """One task with its sampler. Changed only by the thread of its attempt."""

    task: str
    place: TaskPlace
    station: AgentClient
    way: str
    """How it is started; see launch.py."""
    command: str
    """As a person could type it."""
    gpu: int | None
    traffic_source: str
    """`nic:eth0`, or `flows`."""
    pid: int | None = None
    over: bool = False
    exit_code: int | None = None
    ready: bool = False
    steps: int = 0
    moved: float = 0.0
    """When it was last seen to get on."""
    finished: Finished | None = None
    """What it left in finished.json."""
    sampler_pid: int | None = None
    sampler_ready: bool = False
    sampler_over: bool = False
    sampler_exit: int | None = None
    summary: SamplerSummary | None = None
    """The sampler's last words: quality of every source."""

    @property
    def is_worker(self) -> bool:
        return self.task.startswith("worker:")

    @property
    def where(self) -> str:
        return f"{self.task} on {self.station.name}"

    @property
    def words(self) -> str:
        """What it said of its own end."""
        return "" if self.finished is None else self.finished.message
