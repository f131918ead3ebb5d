"""Densely connected networks: Huang et al. 2016 (arXiv 1608.06993)."""

from __future__ import annotations

from driple.workloads.models.base import (
    Hyper,
    Inputs,
    Tensor,
    concat,
    conv,
    conv_norm,
    dims,
    global_head,
    max_pool,
    mean_pool,
    norm,
    norm_conv,
    relu,
)


def cifar(inputs: Inputs, hyper: Hyper, *, depth: int, growth: int) -> Tensor:
    """Three blocks of (depth - 4) / 3 layers, without bottlenecks and without compression."""
    x = conv(inputs["image"], hyper.channels(16), 3)
    for block in range(3):
        if block:
            x = mean_pool(norm_conv(x, dims(x)[-1], 1), 2, 2)
        for _ in range((depth - 4) // 3):
            x = concat([x, norm_conv(x, hyper.channels(growth), 3)])
    return global_head(relu(norm(x)), hyper.classes)


def imagenet(inputs: Inputs, hyper: Hyper, *, blocks: tuple[int, ...]) -> Tensor:
    """Four blocks of bottlenecked layers with growth 32; half the channels pass from block to block."""
    growth = hyper.channels(32)
    x = max_pool(conv_norm(inputs["image"], 2 * growth, 7, 2), 3, 2, "same")
    for block, count in enumerate(blocks):
        if block:
            x = mean_pool(norm_conv(x, max(1, dims(x)[-1] // 2), 1), 2, 2)
        for _ in range(count):
            x = concat([x, norm_conv(norm_conv(x, 4 * growth, 1), growth, 3)])
    return global_head(relu(norm(x)), hyper.classes)
