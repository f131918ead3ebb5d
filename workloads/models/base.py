"""Shared by all builders: their sizes and common layers.

A builder is a function from input tensors to logits, written with tf_keras layers only. So the same function builds the
TF1 graph of a parameter-server job and the eager model of an all-reduce job.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import tf_keras

layers = tf_keras.layers

Tensor = Any
"""A tensor of the graph or a KerasTensor: TensorFlow has no type that covers both."""
Inputs = Mapping[str, Tensor]


@dataclass(frozen=True)
class Hyper:
    """Sizes of one member of a family."""

    batch_size: int
    size: int
    """Image side or sequence length; 0 where there is none."""
    classes: int
    """Labels of an image set, vocabulary of a text, items of a rating table."""
    width: float = 1.0
    """Multiplier of channels and hidden units."""

    def channels(self, number: int, multiple: int = 1) -> int:
        """`number` times the width, at least one, in steps of `multiple`."""
        return max(multiple, int(number * self.width / multiple + 0.5) * multiple)


Builder = Callable[[Inputs, Hyper], Tensor]


def dims(x: Tensor) -> list[int]:
    """Static shape as plain integers: under TF1 behaviour `shape` holds Dimension objects, which behave otherwise."""
    return [int(size) for size in x.shape]


def conv(x: Tensor, filters: int, kernel: int | tuple[int, int], stride: int = 1, **options: Any) -> Tensor:
    """A convolution, without bias unless asked."""
    options = {"padding": "same", "use_bias": False, "kernel_initializer": "he_normal", **options}
    return layers.Conv2D(filters, kernel, strides=stride, **options)(x)


def norm(x: Tensor, **options: Any) -> Tensor:
    """Batch normalisation, with the decay that TF's own CNN benchmarks use."""
    return layers.BatchNormalization(**{"momentum": 0.9, "epsilon": 1e-5, **options})(x)


def relu(x: Tensor) -> Tensor:
    """max(x, 0)."""
    return layers.ReLU()(x)


def conv_norm(x: Tensor, filters: int, kernel: int | tuple[int, int], stride: int = 1, **options: Any) -> Tensor:
    """Convolution, batch normalisation, ReLU."""
    return relu(norm(conv(x, filters, kernel, stride, **options)))


def norm_conv(x: Tensor, filters: int, kernel: int, stride: int = 1) -> Tensor:
    """Batch normalisation, ReLU, convolution: the order of pre-activated networks."""
    return conv(relu(norm(x)), filters, kernel, stride)


def max_pool(x: Tensor, kernel: int, stride: int, padding: str = "valid") -> Tensor:
    """The largest of each window."""
    return layers.MaxPooling2D(kernel, stride, padding)(x)


def mean_pool(x: Tensor, kernel: int, stride: int, padding: str = "valid") -> Tensor:
    """The mean of each window."""
    return layers.AveragePooling2D(kernel, stride, padding)(x)


def concat(parts: list[Tensor]) -> Tensor:
    """Channels side by side."""
    return layers.Concatenate()(parts)


def global_head(x: Tensor, classes: int, dropout: float = 0.0) -> Tensor:
    """Mean over the image, then one dense layer to the logits."""
    x = layers.GlobalAveragePooling2D()(x)
    if dropout:
        x = layers.Dropout(dropout)(x)
    return layers.Dense(classes)(x)


def function(call: Callable[..., Tensor], x: Tensor | list[Tensor]) -> Tensor:
    """A piece without weights as a layer: only layers are recorded by a model."""
    return layers.Lambda(call)(x)
