"""Asynchronous training: at every step a worker averages its weights with those of a random other worker.

As KungFu's PairAveraging: the request goes out before the gradients are computed, and the answer is averaged in before
they are applied. Nobody waits for a step of another worker; each answers requests in a thread, with the weights after
its latest step.
"""

from __future__ import annotations

import random
import threading
import time

import torch
import torch.distributed as dist

from driple.workloads.strategies.base import Task
from driple.workloads.strategies.ps_worker import Pace
from driple.workloads.torch_graphs.torch_zoo_graph import write_graph
from driple.workloads.torch_jobs.meeting import Meeting
from driple.workloads.torch_jobs.training import Training, trainable_bytes

REQUEST, MODEL = 1, 2


def run(task: Task) -> None:
    """Runs a worker to its end."""
    job, output, watchdog = task.job, task.output, task.watchdog
    write_graph(task)
    meeting = Meeting(task)
    training = Training(job, task.index, meeting.device)
    weights = Weights(training.model)
    meeting.begin()
    gradient_bytes = str(sum(trainable_bytes(training.model)))
    output.ready(torch=torch.__version__, backend=dist.get_backend(), gradient_bytes=gradient_bytes)
    peers = [worker for worker in range(job.run.setting.workers) if worker != task.index]
    choose = random.Random(f"{job.run.seed} {task.index}")
    pace, done = Pace(job.run.measurement), 0
    while not pace.over(done, time.monotonic()):
        watchdog.expect(job.step_timeout_s, f"step {done} took more than {job.step_timeout_s:g} s; it is stuck")
        begin = time.monotonic_ns()
        coming = Pull(weights, choose.choice(peers))
        learned = training.backward(training.model)
        weights.average(coming.wait())
        training.optimiser.step()
        weights.publish()
        output.step(done, done + 1, begin, time.monotonic_ns(), learned.loss, learned.accuracy)
        done += 1
    meeting.end()


class Weights:
    """All trainable weights of a model as one flat buffer, and a copy of them for the others."""

    def __init__(self, model: torch.nn.Module) -> None:
        weights = [weight for weight in model.parameters() if weight.requires_grad]
        self.flat = torch.cat([weight.detach().flatten() for weight in weights])
        for weight, part in zip(weights, self.flat.split([weight.numel() for weight in weights]), strict=True):
            weight.data = part.view_as(weight)
        self._published = self.flat.cpu().clone()
        threading.Thread(target=self._serve, name="model server", daemon=True).start()

    def average(self, other: torch.Tensor) -> None:
        """Goes half of the way to the weights of another worker."""
        self.flat.lerp_(other.to(self.flat.device), 0.5)

    def publish(self) -> None:
        """Makes the present weights those that others get. A message under way keeps the earlier ones."""
        self._published = self.flat.cpu().clone()

    def _serve(self) -> None:
        request = torch.empty(1, dtype=torch.int32)
        while True:
            try:
                source = dist.recv(request, tag=REQUEST)
                dist.send(self._published, source, tag=MODEL)
            except RuntimeError:  # a lost worker: the watchdog ends the job, unless it is over
                return


class Pull:
    """The weights of another worker, on their way."""

    def __init__(self, weights: Weights, peer: int) -> None:
        self._box = torch.empty(weights.flat.shape)
        dist.send(torch.zeros(1, dtype=torch.int32), peer, tag=REQUEST)
        self._message = dist.irecv(self._box, peer, tag=MODEL)

    def wait(self) -> torch.Tensor:
        assert self._message is not None
        self._message.wait()
        return self._box
