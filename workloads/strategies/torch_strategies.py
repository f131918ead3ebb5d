"""Strategies of PyTorch. Their code is in workloads/torch_jobs, which is loaded only where a task runs."""

from __future__ import annotations

from driple.workloads.strategies.base import Task, TrainingStrategy


class TorchAllReduce(TrainingStrategy):
    """Synchronous training without servers."""

    name = "allreduce"
    framework = "torch"

    def run(self, task: Task) -> None:
        from driple.workloads.torch_jobs import data_parallel

        data_parallel.run(task)


class PairAveraging(TrainingStrategy):
    """Asynchronous training without servers."""

    name = "pair_averaging"
    framework = "torch"

    def run(self, task: Task) -> None:
        from driple.workloads.torch_jobs import pair_averaging

        pair_averaging.run(task)
