"""Residual networks (workloads/models/resnet.py), versions 1 and 1.5."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from driple.workloads.torch_models.torch_layers import OfImages, Sizes, conv, conv_norm, global_head


def cifar(sizes: Sizes, *, depth: int) -> nn.Module:
    """6n+2 layers in three stages of n basic blocks, with shortcuts that have no parameters (He's option A)."""
    channels = sizes.channels(16)
    layers: list[nn.Module] = [conv_norm(3, channels, 3)]
    for stage, filters in enumerate((16, 32, 64)):
        for block in range((depth - 2) // 6):
            layers.append(Basic(channels, sizes.channels(filters), 2 if stage and not block else 1))
            channels = sizes.channels(filters)
    return OfImages(*layers, global_head(channels, sizes.classes))


def imagenet(sizes: Sizes, *, blocks: tuple[int, ...], stride_in_3x3: bool = False) -> nn.Module:
    """Bottleneck blocks in four stages; version 1.5 has the stride of a stage in its 3x3 convolution."""
    channels = sizes.channels(64)
    layers: list[nn.Module] = [conv_norm(3, channels, 7, 2), nn.MaxPool2d(3, 2, padding=1)]
    for stage, count in enumerate(blocks):
        filters = sizes.channels(64 * 2**stage)
        for block in range(count):
            layers.append(Bottleneck(channels, filters, 2 if stage and not block else 1, stride_in_3x3))
            channels = 4 * filters
    return OfImages(*layers, global_head(channels, sizes.classes))


class Basic(nn.Module):  # type: ignore[misc]
    """Two 3x3 convolutions; the shortcut skips pixels and pads channels."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.stride = stride
        missing = filters - channels
        self.pad = (0, 0, 0, 0, missing // 2, missing - missing // 2)
        self.body = nn.Sequential(
            conv_norm(channels, filters, 3, stride), conv(filters, filters, 3), nn.BatchNorm2d(filters)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shortcut = functional.pad(x[:, :, :: self.stride, :: self.stride], self.pad)
        return functional.relu(self.body(x) + shortcut)


class Bottleneck(nn.Module):  # type: ignore[misc]
    """1x1, 3x3 and 1x1 convolutions; a convolution as shortcut where the shape changes."""

    def __init__(self, channels: int, filters: int, stride: int, stride_in_3x3: bool) -> None:
        super().__init__()
        first, second = (1, stride) if stride_in_3x3 else (stride, 1)
        grown = 4 * filters
        self.shortcut = (
            nn.Sequential(conv(channels, grown, 1, stride), nn.BatchNorm2d(grown))
            if channels != grown or stride != 1
            else nn.Identity()
        )
        self.body = nn.Sequential(
            conv_norm(channels, filters, 1, first),
            conv_norm(filters, filters, 3, second),
            conv(filters, grown, 1),
            nn.BatchNorm2d(grown),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(x) + self.shortcut(x))
