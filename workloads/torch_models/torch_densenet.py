"""Densely connected networks (workloads/models/densenet.py)."""

from __future__ import annotations

import torch
from torch import nn

from driple.workloads.torch_models.torch_layers import OfImages, Sizes, conv_norm, global_head, norm_conv


def imagenet(sizes: Sizes, *, blocks: tuple[int, ...]) -> nn.Module:
    """Four blocks of bottlenecked layers with growth 32; half the channels pass from block to block."""
    growth = sizes.channels(32)
    channels = 2 * growth
    layers: list[nn.Module] = [conv_norm(3, channels, 7, 2), nn.MaxPool2d(3, 2, padding=1)]
    for block, count in enumerate(blocks):
        if block:
            half = max(1, channels // 2)
            layers += [norm_conv(channels, half, 1), nn.AvgPool2d(2, 2)]
            channels = half
        for _ in range(count):
            layers.append(Layer(channels, growth))
            channels += growth
    return OfImages(*layers, nn.BatchNorm2d(channels), nn.ReLU(), global_head(channels, sizes.classes))


class Layer(nn.Module):  # type: ignore[misc]
    """Adds channels to those it gets."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(norm_conv(channels, 4 * growth, 1), norm_conv(4 * growth, growth, 3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cat([x, self.body(x)], dim=1)
