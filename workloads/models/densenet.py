"""Densely connected networks: Huang et al. 2016 (arXiv 1608.06993)."""

from __future__ import annotations

from driple.workloads.models import base as nn
from driple.workloads.models.base import Hyper, Inputs, Tensor


def cifar(inputs: Inputs, hyper: Hyper, *, depth: int, growth: int) -> Tensor:
    """Three blocks of (depth - 4) / 3 layers, without bottlenecks and without compression."""
    x = nn.conv(inputs["image"], hyper.channels(16), 3)
    for block in range(3):
        if block:
            x = nn.mean_pool(nn.norm_conv(x, nn.dims(x)[-1], 1), 2, 2)
        for _ in range((depth - 4) // 3):
            x = nn.concat([x, nn.norm_conv(x, hyper.channels(growth), 3)])
    return nn.global_head(nn.relu(nn.norm(x)), hyper.classes)


def imagenet(inputs: Inputs, hyper: Hyper, *, blocks: tuple[int, ...]) -> Tensor:
    """Four blocks of bottlenecked layers with growth 32; half the channels pass from block to block."""
    growth = hyper.channels(32)
    x = nn.max_pool(nn.conv_norm(inputs["image"], 2 * growth, 7, 2), 3, 2, "same")
    for block, count in enumerate(blocks):
        if block:
            x = nn.mean_pool(nn.norm_conv(x, max(1, nn.dims(x)[-1] // 2), 1), 2, 2)
        for _ in range(count):
            x = nn.concat([x, nn.norm_conv(nn.norm_conv(x, 4 * growth, 1), growth, 3)])
    return nn.global_head(nn.relu(nn.norm(x)), hyper.classes)
