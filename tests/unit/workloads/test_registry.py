from __future__ import annotations

import subprocess
import sys

import pytest

from driple.contracts.errors import BadInput, UnknownName
from driple.contracts.run_spec import Workload
from driple.contracts.zoo import DATASETS, MODELS, OPTIMISERS
from driple.workloads.models import registry
from driple.workloads.runtime import optimisers


def test_the_table_has_the_zoo_and_nothing_else() -> None:
    assert set(registry.TABLE) == set(MODELS)
    assert len(MODELS) >= 45
    assert all(dataset in MODELS[model].datasets[1:] for model, dataset in registry.VARIANTS)


def test_the_table_needs_no_tensorflow() -> None:
    code = (
        "import sys; from driple.workloads.data import inputs;"
        "from driple.workloads.models import custom_model, registry;"
        "from driple.workloads.runtime import optimisers;"
    )
    code += "sys.exit(any(name.partition('.')[0] in ('tensorflow', 'tf_keras', 'keras') for name in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_name_or_dataset_that_is_not_known_is_refused_with_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'mobilenetv2'"):
        registry.entry_of(Workload("mobilenet_v2", "imagenet", 1))
    with pytest.raises(UnknownName, match="did you mean 'imagenet'"):
        registry.entry_of(Workload("resnet50", "imagenett", 1))
    with pytest.raises(BadInput, match="model resnet152 is for imagenet, not for cifar10"):
        registry.entry_of(Workload("resnet152", "cifar10", 1))


@pytest.mark.parametrize(
    ("work", "message"),
    [
        (Workload("vgg16", "imagenet", 2, image_size=16), "vgg16: image_size 16, at least 32 is needed"),
        (Workload("vgg16", "imagenet", 2), "vgg16: image_size is not set, at least 32 is needed"),
        (Workload("transformer", "europarl", 2), "transformer: sequence_length is not set, at least 1 is needed"),
        (Workload("gpt2_small", "europarl", 2, sequence_length=1025), "sequence_length 1025, at most 1024"),
        (Workload("vgg16", "imagenet", 0, image_size=32), "batch_size 0, at least 1 is needed"),
        (Workload("vgg16", "imagenet", 2, image_size=32, width=0.0), "width 0, more than 0 is needed"),
        (Workload("vgg16", "imagenet", 2, image_size=32, width=float("nan")), "width nan, more than 0 is needed"),
    ],
)
def test_sizes_that_a_model_cannot_take_are_refused(work: Workload, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        registry.size_of(work)


def test_alexnet_is_another_network_on_another_dataset() -> None:
    assert registry.size_of(Workload("alexnet", "cifar10", 2, image_size=32)) == 32
    with pytest.raises(BadInput, match="at least 63"):
        registry.size_of(Workload("alexnet", "imagenet", 2, image_size=32))


def test_every_optimiser_has_a_rate_for_every_kind() -> None:
    assert set(optimisers.RATES) == {dataset.kind for dataset in DATASETS.values()}
    assert all(tuple(rates) == OPTIMISERS for rates in optimisers.RATES.values())
    with pytest.raises(UnknownName, match="unknown optimiser 'adan'; did you mean 'adam'"):
        optimisers.known("adan")
