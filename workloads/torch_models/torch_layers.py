"""Layers that several families share. Images are [batch, channels, height, width]."""

from __future__ import annotations

import torch
from torch import nn


class Sizes:
    """Sizes of one member of a family; as `Hyper` of workloads/models/base.py."""

    def __init__(self, size: int, classes: int, width: float = 1.0) -> None:
        """`size` is the image side or sequence length, `width` the multiplier of channels and hidden units."""
        self.size = size
        self.classes = classes
        self.width = width

    def channels(self, number: int, multiple: int = 1) -> int:
        """`number` times the width, at least one, in steps of `multiple`."""
        return max(multiple, int(number * self.width / multiple + 0.5) * multiple)


def conv(
    channels: int, filters: int, kernel: int, stride: int = 1, *, groups: int = 1, bias: bool = False
) -> nn.Conv2d:
    """A convolution that keeps the size of the image, up to its stride."""
    layer = nn.Conv2d(channels, filters, kernel, stride, padding=kernel // 2, groups=groups, bias=bias)
    nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


def dense(units: int, outputs: int, stddev: float | None = None) -> nn.Linear:
    """A dense layer; weights as tf_keras starts them, or normal with `stddev`."""
    layer = nn.Linear(units, outputs)
    if stddev is None:
        nn.init.xavier_uniform_(layer.weight)
    else:
        nn.init.normal_(layer.weight, std=stddev)
    nn.init.zeros_(layer.bias)
    return layer


def conv_norm(channels: int, filters: int, kernel: int, stride: int = 1) -> nn.Sequential:
    """Convolution, batch normalisation, ReLU."""
    return nn.Sequential(conv(channels, filters, kernel, stride), nn.BatchNorm2d(filters), nn.ReLU())


def norm_conv(channels: int, filters: int, kernel: int) -> nn.Sequential:
    """Batch normalisation, ReLU, convolution: the order of pre-activated networks."""
    return nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(), conv(channels, filters, kernel))


def global_head(channels: int, classes: int) -> nn.Sequential:
    """Mean over the image, then one dense layer to the logits."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), dense(channels, classes))


class OfImages(nn.Module):  # type: ignore[misc]
    """A model from the images of a batch to logits."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        logits: torch.Tensor = self.layers(batch["image"])
        return logits
