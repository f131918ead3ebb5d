"""MobileNetV2: Sandler et al. 2018 (arXiv 1801.04381), with the rounding of channels of tf_keras.applications."""

from __future__ import annotations

import torch
from torch import nn

from driple.workloads.torch_models.torch_layers import OfImages, Sizes, conv, global_head

# Expansion, channels, blocks and stride of each stage: table 2.
_STAGES = (
    *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
    *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
)


def mobilenetv2(sizes: Sizes) -> nn.Module:
    """Inverted residual blocks."""
    channels = _rounded(32 * sizes.width)
    layers = [_conv(3, channels, 3, 2)]
    for expansion, filters, blocks, stride in _STAGES:
        for block in range(blocks):
            grown = _rounded(int(filters * sizes.width))
            layers.append(Block(channels, grown, expansion, 1 if block else stride))
            channels = grown
    last = _rounded(1280 * sizes.width) if sizes.width > 1 else 1280
    return OfImages(*layers, _conv(channels, last, 1), global_head(last, sizes.classes))


class Block(nn.Module):  # type: ignore[misc]
    """Expands channels, filters each, and projects back."""

    def __init__(self, channels: int, filters: int, expansion: int, stride: int) -> None:
        super().__init__()
        inner = channels * expansion
        self.adds = stride == 1 and channels == filters
        self.body = nn.Sequential(
            *([_conv(channels, inner, 1)] if expansion > 1 else []),
            _conv(inner, inner, 3, stride, groups=inner),
            conv(inner, filters, 1),
            _norm(filters),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.body(x)
        return x + y if self.adds else y


def _conv(channels: int, filters: int, kernel: int, stride: int = 1, groups: int = 1) -> nn.Module:
    return nn.Sequential(conv(channels, filters, kernel, stride, groups=groups), _norm(filters), nn.ReLU6())


def _norm(filters: int) -> nn.BatchNorm2d:
    return nn.BatchNorm2d(filters, eps=1e-3, momentum=0.001)


def _rounded(channels: float) -> int:
    """To a multiple of 8 that is at most 10 % lower."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near if near >= 0.9 * channels else near + 8
