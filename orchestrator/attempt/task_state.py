"""The state of a task during a run."""

from __future__ import annotations

from dataclasses import dataclass

from driple.contracts.formats.task_files import Finished
from driple.contracts.protocol.sampler_lines import SamplerSummary
from driple.orchestrator.attempt.task_command import ForkServer, TaskPlace
from driple.orchestrator.hosts.agent_client import AgentClient


@dataclass
class TaskState:
    """A task with its sampler. Changed only by the thread of the attempt."""

    task: str
    place: TaskPlace
    client: AgentClient
    way: str  # how it is started; see task_command.py
    command: str  # command line, for messages
    gpu: int | None
    traffic_source: str  # `nic:eth0`, or `flows`
    fork_server: ForkServer | None = None  # where it is forked, if it is
    pid: int | None = None
    over: bool = False
    exit_code: int | None = None
    ready: bool = False
    steps: int = 0
    moved: float = 0.0  # time of its last progress
    finished: Finished | None = None  # content of its finished.json
    sampler_pid: int | None = None
    sampler_ready: bool = False
    sampler_over: bool = False
    sampler_exit: int | None = None
    summary: SamplerSummary | None = None  # quality of every source, from the sampler

    @property
    def is_worker(self) -> bool:
        return self.task.startswith("worker:")

    @property
    def where(self) -> str:
        return f"{self.task} on {self.client.name}"

    @property
    def words(self) -> str:
        return "" if self.finished is None else self.finished.message
