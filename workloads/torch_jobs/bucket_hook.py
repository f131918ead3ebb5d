"""A collective as the communication hook of DistributedDataParallel."""

from __future__ import annotations

import queue
import threading
from typing import Any

import torch

from driple.workloads.collectives.base import Collective


class BucketHook:
    """Sums buckets of gradients in the order in which backward fills them, in a thread, so that backward goes on."""

    def __init__(self, collective: Collective, workers: int) -> None:
        self.collective = collective
        self.failure: Exception | None = None
        """Why a sum failed. What DistributedDataParallel raises then does not name it."""
        self._workers = workers
        self._todo: queue.SimpleQueue[tuple[torch.Tensor, torch.futures.Future[torch.Tensor]]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="all-reduce", daemon=True).start()

    def __call__(self, bucket: Any) -> torch.futures.Future[torch.Tensor]:
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        self._todo.put((bucket.buffer(), future))
        return future

    def _work(self) -> None:
        while True:
            gradients, future = self._todo.get()
            try:
                mean = gradients.div_(self._workers)
                on_cpu = mean.cpu()  # messages are sent from there; on a CPU the same tensor
                self.collective.all_reduce(on_cpu)
                future.set_result(on_cpu.to(mean.device))
            except Exception as error:
                self.failure = error
                future.set_exception(error)
