"""Residual networks: He et al. 2015 (arXiv 1512.03385), v2 from He et al. 2016 (arXiv 1603.05027).

v1.5 has the stride of a stage in its 3x3 and not in its first 1x1 convolution; the parameters are the same.
"""

from __future__ import annotations

import tensorflow as tf

from driple.workloads.models.base import (
    Hyper,
    Inputs,
    Tensor,
    conv,
    conv_norm,
    dims,
    function,
    global_head,
    layers,
    max_pool,
    norm,
    norm_conv,
    relu,
)


def cifar(inputs: Inputs, hyper: Hyper, *, depth: int, version: float) -> Tensor:
    """6n+2 layers in three stages of n basic blocks, with shortcuts that have no parameters (He's option A)."""
    x = conv(inputs["image"], hyper.channels(16), 3)
    x = x if version == 2 else relu(norm(x))
    for stage, filters in enumerate((16, 32, 64)):
        for block in range((depth - 2) // 6):
            x = _basic(x, hyper.channels(filters), 2 if stage and not block else 1, version)
    return global_head(x if version != 2 else relu(norm(x)), hyper.classes)


def imagenet(inputs: Inputs, hyper: Hyper, *, blocks: tuple[int, ...], version: float) -> Tensor:
    """Bottleneck blocks in four stages."""
    x = conv(inputs["image"], hyper.channels(64), 7, 2)
    x = max_pool(x if version == 2 else relu(norm(x)), 3, 2, "same")
    for stage, count in enumerate(blocks):
        for block in range(count):
            x = _bottleneck(x, hyper.channels(64 * 2**stage), 2 if stage and not block else 1, version)
    return global_head(x if version != 2 else relu(norm(x)), hyper.classes)


def _basic(x: Tensor, filters: int, stride: int, version: float) -> Tensor:
    shortcut = x
    missing = filters - dims(x)[-1]
    if stride != 1 or missing:
        pad = [[0, 0], [0, 0], [0, 0], [missing // 2, missing - missing // 2]]
        shortcut = function(lambda y: tf.pad(y[:, ::stride, ::stride], pad), x)
    if version == 2:
        return layers.Add()([shortcut, norm_conv(norm_conv(x, filters, 3, stride), filters, 3)])
    x = norm(conv(conv_norm(x, filters, 3, stride), filters, 3))
    return relu(layers.Add()([shortcut, x]))


def _bottleneck(x: Tensor, filters: int, stride: int, version: float) -> Tensor:
    grows = dims(x)[-1] != 4 * filters or stride != 1
    if version == 2:
        ready = relu(norm(x))
        shortcut = conv(ready, 4 * filters, 1, stride) if grows else x
        y = norm_conv(norm_conv(conv(ready, filters, 1), filters, 3, stride), 4 * filters, 1)
        return layers.Add()([shortcut, y])
    first, second = (1, stride) if version == 1.5 else (stride, 1)
    shortcut = norm(conv(x, 4 * filters, 1, stride)) if grows else x
    y = conv_norm(conv_norm(x, filters, 1, first), filters, 3, second)
    return relu(layers.Add()([shortcut, norm(conv(y, 4 * filters, 1))]))
