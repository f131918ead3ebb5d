"""Xception: Chollet 2016 (arXiv 1610.02357). tf_keras.applications has it too, but in one width only."""

from __future__ import annotations

from driple.workloads.models import base as nn
from driple.workloads.models.base import Hyper, Inputs, Tensor


def xception(inputs: Inputs, hyper: Hyper) -> Tensor:
    """Residual blocks of separable convolutions: three that shrink, eight that do not, one more and two nn.layers."""
    x = nn.conv_norm(inputs["image"], hyper.channels(32), 3, 2, padding="valid")
    x = nn.conv_norm(x, hyper.channels(64), 3, padding="valid")
    for block, filters in enumerate((128, 256, 728)):
        n = hyper.channels(filters)
        y = _separable(x if block == 0 else nn.relu(x), n)
        x = _shrink(x, _separable(nn.relu(y), n), n)
    for _ in range(8):
        y = x
        for _ in range(3):
            y = _separable(nn.relu(y), hyper.channels(728))
        x = nn.layers.Add()([x, y])
    y = _separable(nn.relu(x), hyper.channels(728))
    x = _shrink(x, _separable(nn.relu(y), hyper.channels(1024)), hyper.channels(1024))
    for filters in (1536, 2048):
        x = nn.relu(_separable(x, hyper.channels(filters)))
    return nn.global_head(x, hyper.classes)


def _separable(x: Tensor, filters: int) -> Tensor:
    return nn.norm(nn.layers.SeparableConv2D(filters, 3, padding="same", use_bias=False)(x))


def _shrink(x: Tensor, y: Tensor, filters: int) -> Tensor:
    return nn.layers.Add()([nn.norm(nn.conv(x, filters, 1, 2)), nn.max_pool(y, 3, 2, "same")])
