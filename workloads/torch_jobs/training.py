"""Model, loss, optimiser and input of one worker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from driple.contracts.run_spec import JobSpec
from driple.workloads.models.registry import dataset_of
from driple.workloads.torch_jobs import torch_inputs, torch_optimisers
from driple.workloads.torch_models import torch_zoo

PADDING = 0
"""Token that no loss counts."""


@dataclass(frozen=True)
class Learned:
    """What a step says of the model before its update."""

    loss: float
    accuracy: float
    """Share of images, or of tokens, whose most likely class is the right one."""


class Training:
    """One worker's part of a job. Equal seeds give equal weights on all workers, and other examples on each."""

    def __init__(self, job: JobSpec, index: int, device: torch.device) -> None:
        run = job.run
        if run.measurement.threads:
            torch.set_num_threads(run.measurement.threads)
        torch.manual_seed(run.seed)
        dataset = dataset_of(run.workload)
        self.model = torch_zoo.network(run.workload).to(device).train()
        self.optimiser = torch_optimisers.make(run.workload.optimiser, dataset.kind, self.model.parameters())
        torch.manual_seed(run.seed * 1009 + index)  # dropout masks differ
        self._device = device
        self._batches = torch_inputs.batches(
            run.workload, seed=run.seed, worker=index, data_dir=job.task(f"worker:{index}").data_dir
        )

    def backward(self, forward: Callable[[torch_inputs.Batch], torch.Tensor]) -> Learned:
        """Computes the gradients of a batch by `forward`: the model, or what wraps it."""
        batch = {name: tensor.to(self._device) for name, tensor in next(self._batches).items()}
        self.optimiser.zero_grad()
        logits = forward(batch)
        loss, flat, labels = loss_of(logits, batch)
        loss.backward()
        with torch.no_grad():
            accuracy = (flat.argmax(-1) == labels).float().mean()
        return Learned(float(loss.detach()), float(accuracy))


def loss_of(logits: torch.Tensor, batch: torch_inputs.Batch) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The loss of a batch, and the logits and labels as [examples or tokens, ...]."""
    is_image = "label" in batch
    labels = batch["label"] if is_image else batch["target"][:, 1:].flatten()
    flat = logits.flatten(0, -2)
    return functional.cross_entropy(flat, labels, ignore_index=-100 if is_image else PADDING), flat, labels


def trainable_bytes(model: nn.Module) -> list[int]:
    """Size of each trainable weight, in the order of the layers."""
    return [weight.numel() * weight.element_size() for weight in model.parameters() if weight.requires_grad]
