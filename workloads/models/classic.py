"""Plain stacks of convolutions and dense layers: trivial, LeNet, AlexNet, OverFeat, VGG."""

from __future__ import annotations

from typing import Any

import tf_keras

from driple.workloads.models.base import Hyper, Inputs, Tensor, conv, layers, max_pool


def trivial(inputs: Inputs, hyper: Hyper) -> Tensor:
    """One hidden unit, then 4096, then the logits: the smallest model of TF's CNN benchmarks."""
    # Scaled, since a unit that reads every pixel diverges at a learning rate that suits the other models.
    x = layers.Rescaling((3 * hyper.size**2) ** -0.5)(layers.Flatten()(inputs["image"]))
    return _dense(x, 1, hyper.channels(4096), classes=hyper.classes)


def lenet(inputs: Inputs, hyper: Hyper) -> Tensor:
    """LeNet-5 in the size that TF's CNN benchmarks and tutorials use."""
    x = max_pool(_conv(inputs["image"], hyper.channels(32), 5), 2, 2)
    x = max_pool(_conv(x, hyper.channels(64), 5), 2, 2)
    return _dense(layers.Flatten()(x), hyper.channels(512), classes=hyper.classes)


def alexnet(inputs: Inputs, hyper: Hyper) -> Tensor:
    """Krizhevsky 2014 (arXiv 1404.5997)."""
    x = _conv(layers.ZeroPadding2D(2)(inputs["image"]), hyper.channels(64), 11, 4, padding="valid")
    x = _conv(max_pool(x, 3, 2), hyper.channels(192), 5)
    x = max_pool(x, 3, 2)
    for filters in (384, 256, 256):
        x = _conv(x, hyper.channels(filters), 3)
    x = layers.Flatten()(max_pool(x, 3, 2))
    return _dense(x, hyper.channels(4096), hyper.channels(4096), classes=hyper.classes, dropout=0.5)


def alexnet_cifar(inputs: Inputs, hyper: Hyper) -> Tensor:
    """The net of two convolutions that TF's CNN benchmarks and tutorials call AlexNet on CIFAR-10."""
    x = max_pool(_conv(inputs["image"], hyper.channels(64), 5), 3, 2, "same")
    x = max_pool(_conv(x, hyper.channels(64), 5), 3, 2, "same")
    return _dense(layers.Flatten()(x), hyper.channels(384), hyper.channels(192), classes=hyper.classes)


def overfeat(inputs: Inputs, hyper: Hyper) -> Tensor:
    """The fast model of Sermanet et al. 2013 (arXiv 1312.6229)."""
    x = max_pool(_conv(inputs["image"], hyper.channels(96), 11, 4, padding="valid"), 2, 2)
    x = max_pool(_conv(x, hyper.channels(256), 5, padding="valid"), 2, 2)
    for filters in (512, 1024, 1024):
        x = _conv(x, hyper.channels(filters), 3)
    x = layers.Flatten()(max_pool(x, 2, 2))
    return _dense(x, hyper.channels(3072), hyper.channels(4096), classes=hyper.classes, dropout=0.5)


def vgg(inputs: Inputs, hyper: Hyper, *, convolutions: tuple[int, ...]) -> Tensor:
    """Simonyan and Zisserman 2014 (arXiv 1409.1556): five stages of 3x3 convolutions."""
    x = inputs["image"]
    for stage, count in enumerate(convolutions):
        for _ in range(count):
            x = _conv(x, hyper.channels(min(64 * 2**stage, 512)), 3)
        x = max_pool(x, 2, 2)
    x = layers.Flatten()(x)
    return _dense(x, hyper.channels(4096), hyper.channels(4096), classes=hyper.classes, dropout=0.5)


def _conv(x: Tensor, filters: int, kernel: int, stride: int = 1, **options: Any) -> Tensor:
    return conv(x, filters, kernel, stride, use_bias=True, activation="relu", **options)


def _dense(x: Tensor, *units: int, classes: int, dropout: float = 0.0) -> Tensor:
    for number in units:
        x = layers.Dense(number, activation="relu", kernel_initializer="he_normal")(x)
        if dropout:
            x = layers.Dropout(dropout)(x)
    # Without batch normalisation the input of this layer is large: unless it starts near zero, the first loss is many
    # times that of a uniform guess.
    return layers.Dense(classes, kernel_initializer=tf_keras.initializers.RandomNormal(stddev=0.01))(x)
