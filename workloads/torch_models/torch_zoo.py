"""Models of the zoo in torch by name. contracts/zoo.py says which of the zoo are here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from torch import nn

from driple.contracts.errors import UnknownName
from driple.contracts.run_spec import Workload
from driple.workloads.models.registry import dataset_of, size_of
from driple.workloads.torch_models import (
    torch_classic,
    torch_densenet,
    torch_mobilenet,
    torch_resnet,
    torch_transformer,
)
from driple.workloads.torch_models.torch_layers import Sizes

Builder = Callable[[Sizes], nn.Module]

_BOTTLENECKS = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3), "resnet152": (3, 8, 36, 3)}
_DENSE = {"densenet121": (6, 12, 24, 16), "densenet169": (6, 12, 32, 32), "densenet201": (6, 12, 48, 32)}
_VGG = {"vgg11": (1, 1, 2, 2, 2), "vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}

ZOO: dict[str, Builder] = {
    **{f"resnet{depth}": partial(torch_resnet.cifar, depth=depth) for depth in (20, 32, 44, 56, 110)},
    **{name: partial(torch_resnet.imagenet, blocks=blocks) for name, blocks in _BOTTLENECKS.items()},
    **{
        f"{name}_v1.5": partial(torch_resnet.imagenet, blocks=blocks, stride_in_3x3=True)
        for name, blocks in _BOTTLENECKS.items()
    },
    "mobilenetv2": torch_mobilenet.mobilenetv2,
    **{name: partial(torch_densenet.imagenet, blocks=blocks) for name, blocks in _DENSE.items()},
    **{name: partial(torch_classic.vgg, convolutions=convolutions) for name, convolutions in _VGG.items()},
    "lenet": torch_classic.lenet,
    "transformer": partial(torch_transformer.Translate, units=512, heads=8),
    "transformer_big": partial(torch_transformer.Translate, units=1024, heads=16, dropout=0.3),
    "gpt2_small": torch_transformer.Gpt2,
}


def network(workload: Workload) -> nn.Module:
    """A model from a batch of torch_inputs.py to logits. Raises BadInput for a size that it cannot take."""
    if workload.model not in ZOO:
        raise UnknownName("model for torch", workload.model, tuple(ZOO))
    return ZOO[workload.model](Sizes(size_of(workload), dataset_of(workload).classes, workload.width))
