"""The interface between a task and the framework it trains with."""

from __future__ import annotations

from abc import ABC, abstractmethod

from driple.contracts.run_spec import JobSpec
from driple.contracts.strategy import BACKENDS, FRAMEWORKS
from driple.workloads.graphs.graph_writer import Graph


class TrainingFramework(ABC):
    """The parts of a task that depend on the framework, besides models and strategies."""

    name: str
    packages: tuple[str, ...]
    """Packages of driple.workloads that its tasks use, for the fork server to load."""

    @property
    def title(self) -> str:
        """As it is written in messages."""
        return FRAMEWORKS[self.name].title

    @abstractmethod
    def prepare_environment(self, gpu: int | None) -> None:
        """Sets the variables that the framework reads at its start; `gpu` is the only visible GPU, None for none."""

    @abstractmethod
    def load(self) -> str:
        """Imports all that tasks need, without starting the framework's runtime; returns its version."""

    @abstractmethod
    def load_for_graphs(self) -> None:
        """Imports all that `graph_of` needs. The process then builds graphs and trains nothing."""

    @abstractmethod
    def graph_of(self, job: JobSpec, task: str) -> Graph:
        """The training graph of a worker. Raises ArithmeticError if a size does not fit 64 bits."""

    @abstractmethod
    def cause(self, error: Exception) -> str:
        """The one line of an error that names the cause."""

    @abstractmethod
    def is_expected(self, error: Exception) -> bool:
        """Whether training may raise this error without a fault in the code: a lost peer, no memory left."""

    @abstractmethod
    def is_broken_image(self, error: Exception) -> bool:
        """Whether an input image could not be decoded."""

    def is_of_library(self, error: Exception) -> bool:
        """Whether a library that carries tensors between tasks raised it: it does so if a peer is lost."""
        libraries = {module for backend in BACKENDS.values() for module in backend.packages}
        return type(error).__module__.partition(".")[0] in libraries

    def is_out_of_memory(self, error: Exception) -> bool:
        return isinstance(error, MemoryError)

    def explain(self, error: Exception, job: JobSpec | None = None) -> str:
        if self.is_out_of_memory(error):
            batch = f"batch {job.run.workload.batch_size} of {job.run.workload.model}" if job else "this batch"
            return f"out of memory: {batch} does not fit; use a smaller batch or size ({self.cause(error)[:200]})"
        return f"{type(error).__name__}: {self.cause(error)[:300]}"
