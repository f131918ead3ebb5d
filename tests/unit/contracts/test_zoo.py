from __future__ import annotations

import pytest

from driple.contracts.errors import UnknownName
from driple.contracts.zoo import DATASETS, MODELS, find_model, ordinary_size


def test_there_are_at_least_45_models_each_for_known_datasets() -> None:
    assert len(MODELS) >= 45
    assert all(set(model.datasets) <= set(DATASETS) and model.datasets for model in MODELS.values())


def test_ordinary_sizes() -> None:
    imagenet, cifar = DATASETS["imagenet"], DATASETS["cifar10"]
    assert ordinary_size(MODELS["inception3"], imagenet) == 299
    assert ordinary_size(MODELS["alexnet"], cifar) == 32
    assert ordinary_size(MODELS["resnet50"], imagenet) == 224
    assert ordinary_size(MODELS["ncf"], DATASETS["movielens"]) is None
    assert ordinary_size(None, cifar) == 32


def test_an_unknown_model_names_the_nearest() -> None:
    assert find_model("vgg16").family == "vgg"
    with pytest.raises(UnknownName, match="did you mean 'resnet56'"):
        find_model("resnet65")
