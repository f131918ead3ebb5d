"""The model zoo: names, families and default sizes of datasets and models. workloads/ builds them.

It needs no TensorFlow, so that the controller can refuse an unknown name and a dataset can be split by architecture.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Optional, Tuple

from driple.contracts.errors import UnknownName

IMAGE = "image"
SEQUENCE = "sequence"
RATING = "rating"


@dataclass(frozen=True)
class Dataset:
    """Training data of a model."""

    name: str
    kind: str  # `image`, `sequence` or `rating`
    size: Optional[int]  # default image side in pixels, or sequence length in tokens; None if neither applies
    classes: int  # number of labels of images, words of texts, or items of ratings


@dataclass(frozen=True)
class Model:
    """One architecture of the zoo."""

    name: str
    family: str  # a split by architecture keeps a family on one side
    datasets: Tuple[str, ...]  # names of possible datasets, the default first
    size: Optional[int] = None  # default input size if it differs from the dataset's

    @property
    def frameworks(self) -> Tuple[str, ...]:
        """Frameworks in which it can be trained."""
        return ("tensorflow", "torch") if self.name in _IN_TORCH else ("tensorflow",)


OWN_MODELS: Tuple[str, ...] = ("tensorflow",)
"""Frameworks in which a user's own model can be trained."""
_IN_TORCH = frozenset(
    (
        *("resnet20", "resnet32", "resnet44", "resnet56", "resnet110", "resnet50", "resnet101", "resnet152"),
        *("resnet50_v1.5", "resnet101_v1.5", "resnet152_v1.5", "mobilenetv2"),
        *("densenet121", "densenet169", "densenet201", "vgg11", "vgg16", "vgg19", "lenet"),
        *("transformer", "transformer_big", "gpt2_small"),
    )
)


DATASETS: Dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        Dataset("cifar10", IMAGE, 32, 10),
        Dataset("imagenet", IMAGE, 224, 1000),
        Dataset("europarl", SEQUENCE, 50, 32000),
        Dataset("movielens", RATING, None, 3706),
    )
}


def _models(family: str, dataset: str, names: str, size: Optional[int] = None) -> Tuple[Model, ...]:
    return tuple(Model(name, family, (dataset,), size) for name in names.split())


_LARGE_OR_SMALL = ("imagenet", "cifar10")
"""Of models whose studies also trained them on CIFAR-10, at 32 pixels and with 10 classes."""
MODELS: Dict[str, Model] = {
    model.name: model
    for model in (
        *_models("resnet", "cifar10", "resnet20 resnet32 resnet44 resnet56 resnet110"),
        *_models("resnet", "cifar10", "resnet20_v2 resnet32_v2 resnet44_v2 resnet56_v2 resnet110_v2"),
        *_models("densenet", "cifar10", "densenet40_k12 densenet100_k12 densenet100_k24"),
        Model("alexnet", "alexnet", ("imagenet", "cifar10")),
        *_models("trivial", "imagenet", "trivial"),
        *_models("lenet", "imagenet", "lenet", size=28),
        *_models("overfeat", "imagenet", "overfeat", size=231),
        *_models("vgg", "imagenet", "vgg11 vgg16 vgg19"),
        *_models("googlenet", "imagenet", "googlenet"),
        *_models("inception", "imagenet", "inception3 inception4", size=299),
        Model("resnet50", "resnet", _LARGE_OR_SMALL),
        Model("resnet101", "resnet", _LARGE_OR_SMALL),
        *_models("resnet", "imagenet", "resnet152"),
        *_models("resnet", "imagenet", "resnet50_v1.5 resnet101_v1.5 resnet152_v1.5"),
        *_models("resnet", "imagenet", "resnet50_v2 resnet101_v2 resnet152_v2"),
        *_models("mobilenet", "imagenet", "mobilenet"),
        Model("mobilenetv2", "mobilenet", _LARGE_OR_SMALL),
        *_models("densenet", "imagenet", "densenet121 densenet169"),
        Model("densenet201", "densenet", _LARGE_OR_SMALL),
        *_models("nasnet", "imagenet", "nasnet"),
        *_models("xception", "imagenet", "xception", size=299),
        *_models("nmt", "europarl", "nmt_small nmt_medium nmt_big"),
        *_models("transformer", "europarl", "transformer transformer_big transformer_relative transformer_aan"),
        *_models("gpt", "europarl", "gpt2_small"),
        *_models("ncf", "movielens", "ncf"),
    )
}

MAX_BATCH = 2**24  # larger ones are typing errors

OPTIMISERS: Tuple[str, ...] = ("sgd", "momentum", "rmsprop", "adam")


def find_model(name: str) -> Model:
    """The model of that name. Raises UnknownName with the nearest name and the list."""
    if name not in MODELS:
        raise UnknownName("model", name, tuple(MODELS))
    return MODELS[name]


def ordinary_size(model: Optional[Model], dataset: Dataset) -> Optional[int]:
    """Default image side or sequence length of `model` (None for a user's own) on `dataset`."""
    if model is not None and model.size is not None and dataset.name == model.datasets[0]:
        return model.size
    return dataset.size
