"""Torch models: as many weights as in TensorFlow, and a gradient for each."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from driple.contracts.errors import BadInput
from driple.contracts.run_spec import Workload
from driple.contracts.traffic_formulas import COUNTER_BYTES
from driple.contracts.zoo import DATASETS, IMAGE, MODELS, ordinary_size
from driple.pipeline.graph.stored_graph import find_stored
from driple.workloads.torch_jobs import torch_inputs
from driple.workloads.torch_models import torch_zoo


def workload(model: str, dataset: str | None = None, *, size: int | None = None, width: float = 1.0) -> Workload:
    of = DATASETS[dataset or MODELS[model].datasets[0]]
    size = size or ordinary_size(MODELS[model], of)
    sizes = {"image_size": size} if of.kind == IMAGE else {"sequence_length": size}
    return Workload(model=model, dataset=of.name, batch_size=2, width=width, **sizes)  # type: ignore[arg-type]


def without_memory(work: Workload) -> nn.Module:
    """A model whose weights have shapes and no values."""
    with torch.device("meta"):
        return torch_zoo.network(work)


def count(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


def test_the_zoo_says_which_models_there_are() -> None:
    assert {name for name, model in MODELS.items() if "torch" in model.frameworks} == set(torch_zoo.ZOO)


@pytest.mark.parametrize("name", torch_zoo.ZOO)
def test_weights_are_as_many_as_in_the_graph_of_tensorflow(name: str) -> None:
    stored = find_stored(workload(name))
    assert stored is not None
    model = without_memory(workload(name))
    averages = sum(buffer.numel() for buffer in model.buffers() if buffer.is_floating_point())
    # Servers also hold the counter of steps and the moving averages of batch normalisation.
    assert 4 * (count(model) + averages) + COUNTER_BYTES == stored.variable_bytes.sum()


@pytest.mark.parametrize(
    ("name", "megabytes"),
    [("mobilenetv2", 8.95), ("densenet201", 72.45), ("resnet50", 94.11), ("resnet101", 170.08)],
)
def test_the_models_of_the_traffic_study_on_cifar10(name: str, megabytes: float) -> None:
    assert 4e-6 * count(without_memory(workload(name, "cifar10"))) == pytest.approx(megabytes, abs=0.005)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        *(("resnet20", 8), ("resnet50", 32), ("resnet50_v1.5", 32), ("mobilenetv2", 32), ("densenet121", 32)),
        *(("vgg11", 32), ("lenet", 8), ("transformer", 5), ("gpt2_small", 5)),
    ],
)
def test_a_gradient_for_every_weight(name: str, size: int) -> None:
    torch.manual_seed(1)
    work = workload(name, size=size, width=0.25)
    batch = next(torch_inputs.batches(work, seed=1, worker=0, data_dir=None))
    model = torch_zoo.network(work)
    logits = model(batch)
    classes = DATASETS[work.dataset].classes
    assert logits.shape == ((2, classes) if "label" in batch else (2, size, classes))
    logits.sum().backward()
    assert [name for name, weight in model.named_parameters() if weight.grad is None] == []
    assert count(model) < count(without_memory(workload(name, size=size)))


def test_examples_are_those_of_a_seed_and_a_worker() -> None:
    work = workload("resnet20")

    def images(seed: int, worker: int) -> torch.Tensor:
        return next(torch_inputs.batches(work, seed=seed, worker=worker, data_dir=None))["image"]

    assert torch.equal(images(1, 0), images(1, 0))
    assert not torch.equal(images(1, 0), images(1, 1)) and not torch.equal(images(1, 0), images(2, 0))
    assert images(1, 0).shape == (2, 3, 32, 32)


def test_what_torch_does_not_have_is_named() -> None:
    with pytest.raises(BadInput, match="model for torch 'nasnet'"):
        torch_zoo.network(workload("nasnet"))
    with pytest.raises(BadInput, match="image_size 31, at least 32"):
        torch_zoo.network(workload("vgg16", size=31))
    with pytest.raises(BadInput, match="synthetic input only"):
        torch_inputs.batches(workload("resnet20"), seed=1, worker=0, data_dir="/data")
