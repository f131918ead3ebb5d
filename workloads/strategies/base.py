"""The interface of a training strategy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from driple.contracts.run_spec import JobSpec
from driple.workloads.runtime.task_output import TaskOutput
from driple.workloads.runtime.watchdog import Watchdog


@dataclass(frozen=True)
class Task:
    """One task of a job, ready to run."""

    job: JobSpec
    role: str
    index: int
    output: TaskOutput
    watchdog: Watchdog
    graph_file: Path | None
    """Where a worker writes its graph; None for nowhere."""


class TrainingStrategy(ABC):
    """Runs the tasks of a job. Its roles and limits are in contracts/strategy.py."""

    name: str
    framework: str
    library: str = ""
    """What trains in place of the framework's own data parallelism (`library` of a backend)."""

    @abstractmethod
    def run(self, task: Task) -> None:
        """Runs a task to its end. Errors of the framework may pass; the caller explains them."""
