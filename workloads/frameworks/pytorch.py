"""PyTorch: environment, imports and errors."""

from __future__ import annotations

import contextlib
import importlib
import os

from driple.contracts.run_spec import JobSpec
from driple.workloads.frameworks.base import TrainingFramework
from driple.workloads.graphs.graph_writer import Graph


class PyTorch(TrainingFramework):
    """PyTorch with torch.distributed."""

    name = "torch"
    packages = ("frameworks", "strategies", "runtime", "collectives", "torch_jobs", "torch_models", "torch_graphs")

    def prepare_environment(self, gpu: int | None) -> None:
        os.environ["CUDA_VISIBLE_DEVICES"] = "" if gpu is None else str(gpu)
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")  # it warns of every host without a name

    def load(self) -> str:
        # The optimiser and data parallelism import more when they are first used: load it here, not in each task.
        for name in ("torch", "torch.distributed", "torch.nn.parallel", "torch._dynamo"):
            importlib.import_module(name)
        with contextlib.suppress(ImportError):  # a task without it says so when it writes its graph
            importlib.import_module("pyarrow.parquet")
        import torch

        return str(torch.__version__)

    def load_for_graphs(self) -> None:
        self.prepare_environment(gpu=None)
        importlib.import_module("driple.workloads.torch_graphs.torch_zoo_graph")

    def graph_of(self, job: JobSpec, task: str) -> Graph:
        from driple.workloads.torch_graphs import torch_zoo_graph

        return torch_zoo_graph.of_job(job, task)

    def cause(self, error: Exception) -> str:
        lines = [line.strip() for line in str(error).splitlines() if any(map(str.isalpha, line))]
        return lines[0] if lines else "no more is known"

    def is_expected(self, error: Exception) -> bool:
        from torch.distributed import DistError

        # Errors of gloo are plain RuntimeErrors that name its source file.
        of_peers = isinstance(error, DistError) or "gloo" in str(error) or self.is_of_library(error)
        return of_peers or self.is_out_of_memory(error)

    def is_broken_image(self, error: Exception) -> bool:
        return False

    def is_out_of_memory(self, error: Exception) -> bool:
        from torch import OutOfMemoryError

        allocator = isinstance(error, RuntimeError) and "not enough memory" in str(error)
        return super().is_out_of_memory(error) or isinstance(error, OutOfMemoryError) or allocator
