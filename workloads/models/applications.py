"""Models of tf_keras.applications that have a width option. Models with fixed channels have builders of our own."""

from __future__ import annotations

import tf_keras
from tf_keras.src.applications.nasnet import NASNet  # the public NASNetMobile fixes the width

from driple.workloads.models.base import Hyper, Inputs, Tensor


def mobilenet(inputs: Inputs, hyper: Hyper) -> Tensor:
    """Howard et al. 2017 (arXiv 1704.04861)."""
    return tf_keras.applications.MobileNet(alpha=hyper.width, **_common(inputs, hyper)).output


def mobilenetv2(inputs: Inputs, hyper: Hyper) -> Tensor:
    """Sandler et al. 2018 (arXiv 1801.04381)."""
    return tf_keras.applications.MobileNetV2(alpha=hyper.width, **_common(inputs, hyper)).output


def nasnet(inputs: Inputs, hyper: Hyper) -> Tensor:
    """NASNet-A mobile: Zoph et al. 2017 (arXiv 1707.07012). Filters go in steps of 96, as its cells need."""
    return NASNet(
        penultimate_filters=hyper.channels(1056, 96),
        num_blocks=4,
        stem_block_filters=hyper.channels(32),
        skip_reduction=False,
        filter_multiplier=2,
        default_size=224,
        **_common(inputs, hyper),
    ).output


def _common(inputs: Inputs, hyper: Hyper) -> dict[str, object]:
    return {
        "input_tensor": inputs["image"],
        "input_shape": (hyper.size, hyper.size, 3),
        "weights": None,
        "classes": hyper.classes,
        "classifier_activation": None,
    }
