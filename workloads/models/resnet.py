"""Residual networks: He et al. 2015 (arXiv 1512.03385), v2 from He et al. 2016 (arXiv 1603.05027).

v1.5 has the stride of a stage in its 3x3 and not in its first 1x1 convolution; the parameters are the same.
"""

from __future__ import annotations

import tensorflow as tf

from driple.workloads.models import base as nn
from driple.workloads.models.base import Hyper, Inputs, Tensor


def cifar(inputs: Inputs, hyper: Hyper, *, depth: int, version: float) -> Tensor:
    """6n+2 layers in three stages of n basic blocks, with shortcuts that have no parameters (He's option A)."""
    x = nn.conv(inputs["image"], hyper.channels(16), 3)
    x = x if version == 2 else nn.relu(nn.norm(x))
    for stage, filters in enumerate((16, 32, 64)):
        for block in range((depth - 2) // 6):
            x = _basic(x, hyper.channels(filters), 2 if stage and not block else 1, version)
    return nn.global_head(x if version != 2 else nn.relu(nn.norm(x)), hyper.classes)


def imagenet(inputs: Inputs, hyper: Hyper, *, blocks: tuple[int, ...], version: float) -> Tensor:
    """Bottleneck blocks in four stages."""
    x = nn.conv(inputs["image"], hyper.channels(64), 7, 2)
    x = nn.max_pool(x if version == 2 else nn.relu(nn.norm(x)), 3, 2, "same")
    for stage, count in enumerate(blocks):
        for block in range(count):
            x = _bottleneck(x, hyper.channels(64 * 2**stage), 2 if stage and not block else 1, version)
    return nn.global_head(x if version != 2 else nn.relu(nn.norm(x)), hyper.classes)


def _basic(x: Tensor, filters: int, stride: int, version: float) -> Tensor:
    shortcut = x
    missing = filters - nn.dims(x)[-1]
    if stride != 1 or missing:
        pad = [[0, 0], [0, 0], [0, 0], [missing // 2, missing - missing // 2]]
        shortcut = nn.function(lambda y: tf.pad(y[:, ::stride, ::stride], pad), x)
    if version == 2:
        return nn.layers.Add()([shortcut, nn.norm_conv(nn.norm_conv(x, filters, 3, stride), filters, 3)])
    x = nn.norm(nn.conv(nn.conv_norm(x, filters, 3, stride), filters, 3))
    return nn.relu(nn.layers.Add()([shortcut, x]))


def _bottleneck(x: Tensor, filters: int, stride: int, version: float) -> Tensor:
    grows = nn.dims(x)[-1] != 4 * filters or stride != 1
    if version == 2:
        ready = nn.relu(nn.norm(x))
        shortcut = nn.conv(ready, 4 * filters, 1, stride) if grows else x
        y = nn.norm_conv(nn.norm_conv(nn.conv(ready, filters, 1), filters, 3, stride), 4 * filters, 1)
        return nn.layers.Add()([shortcut, y])
    first, second = (1, stride) if version == 1.5 else (stride, 1)
    shortcut = nn.norm(nn.conv(x, 4 * filters, 1, stride)) if grows else x
    y = nn.conv_norm(nn.conv_norm(x, filters, 1, first), filters, 3, second)
    return nn.relu(nn.layers.Add()([shortcut, nn.norm(nn.conv(y, 4 * filters, 1))]))
