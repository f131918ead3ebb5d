"""Inception networks: modules of parallel branches whose channels are concatenated.

GoogLeNet is Szegedy et al. 2014 (arXiv 1409.4842), v3 2015 (arXiv 1512.00567), v4 2016 (arXiv 1602.07261). All are
without their auxiliary heads.
"""

from __future__ import annotations

from typing import Any

from driple.workloads.models import base as nn
from driple.workloads.models.base import Hyper, Inputs, Tensor

# A step of a branch: filters and kernel, here a name for each kernel that occurs.
_ROW, _COLUMN = (1, 7), (7, 1)
_SHORT_ROW, _SHORT_COLUMN = (1, 3), (3, 1)
_Step = tuple[int, "int | tuple[int, int]"]

# Channels of each module: 1x1; 1x1 and 3x3; 1x1 and 5x5; 1x1 after pooling. None is a pooling between stages.
_GOOGLENET: tuple[tuple[int, ...] | None, ...] = (
    (64, 96, 128, 16, 32, 32),
    (128, 128, 192, 32, 96, 64),
    None,
    (192, 96, 208, 16, 48, 64),
    (160, 112, 224, 24, 64, 64),
    (128, 128, 256, 24, 64, 64),
    (112, 144, 288, 32, 64, 64),
    (256, 160, 320, 32, 128, 128),
    None,
    (256, 160, 320, 32, 128, 128),
    (384, 192, 384, 48, 128, 128),
)


def googlenet(inputs: Inputs, hyper: Hyper) -> Tensor:
    """Nine modules of four branches; convolutions with bias and without batch normalisation."""

    def step(x: Tensor, filters: int, kernel: int, stride: int = 1) -> Tensor:
        return nn.conv(x, hyper.channels(filters), kernel, stride, use_bias=True, activation="relu")

    x = nn.max_pool(step(inputs["image"], 64, 7, 2), 3, 2, "same")
    x = nn.max_pool(step(step(x, 64, 1), 192, 3), 3, 2, "same")
    for module in _GOOGLENET:
        if module is None:
            x = nn.max_pool(x, 3, 2, "same")
            continue
        one, three_in, three, five_in, five, pooled = module
        branches = [step(x, one, 1), step(step(x, three_in, 1), three, 3), step(step(x, five_in, 1), five, 5)]
        x = nn.concat([*branches, step(nn.max_pool(x, 3, 1, "same"), pooled, 1)])
    return nn.global_head(x, hyper.classes, dropout=0.4)


class _Kit:
    """Steps of v3 and v4: convolution, batch normalisation, ReLU."""

    def __init__(self, hyper: Hyper, *, scale: bool) -> None:
        self.hyper = hyper
        self.scale = scale

    def step(self, x: Tensor, filters: int, kernel: Any, stride: int = 1, padding: str = "same") -> Tensor:
        x = nn.conv(x, self.hyper.channels(filters), kernel, stride, padding=padding)
        return nn.relu(nn.norm(x, scale=self.scale, epsilon=1e-3))

    def chain(self, x: Tensor, *steps: _Step) -> Tensor:
        for filters, kernel in steps:
            x = self.step(x, filters, kernel)
        return x

    def shrink(self, x: Tensor, filters: int) -> Tensor:
        """The end of a branch that halves the image."""
        return self.step(x, filters, 3, 2, "valid")

    def pooled(self, x: Tensor, filters: int) -> Tensor:
        """The branch with average pooling."""
        return self.step(nn.mean_pool(x, 3, 1, "same"), filters, 1)

    def fork(self, x: Tensor, filters: int) -> list[Tensor]:
        return [self.step(x, filters, _SHORT_ROW), self.step(x, filters, _SHORT_COLUMN)]


def inception3(inputs: Inputs, hyper: Hyper) -> Tensor:
    """Three sizes of module; batch normalisation without scale, as published."""
    kit = _Kit(hyper, scale=False)
    x = kit.shrink(inputs["image"], 32)
    x = nn.max_pool(kit.step(kit.step(x, 32, 3, padding="valid"), 64, 3), 3, 2)
    x = nn.max_pool(kit.step(kit.step(x, 80, 1), 192, 3, padding="valid"), 3, 2)
    for pooled in (32, 64, 64):
        branches = [kit.chain(x, (64, 1)), kit.chain(x, (48, 1), (64, 5)), kit.chain(x, (64, 1), (96, 3), (96, 3))]
        x = nn.concat([*branches, kit.pooled(x, pooled)])
    x = nn.concat([kit.shrink(x, 384), kit.shrink(kit.chain(x, (64, 1), (96, 3)), 96), nn.max_pool(x, 3, 2)])
    for n in (128, 160, 160, 192):
        branches = [
            kit.chain(x, (192, 1)),
            kit.chain(x, (n, 1), (n, _ROW), (192, _COLUMN)),
            kit.chain(x, (n, 1), (n, _COLUMN), (n, _ROW), (n, _COLUMN), (192, _ROW)),
        ]
        x = nn.concat([*branches, kit.pooled(x, 192)])
    tall = kit.chain(x, (192, 1), (192, _ROW), (192, _COLUMN))
    x = nn.concat([kit.shrink(kit.chain(x, (192, 1)), 320), kit.shrink(tall, 192), nn.max_pool(x, 3, 2)])
    for _ in range(2):
        near, far = kit.chain(x, (384, 1)), kit.chain(x, (448, 1), (384, 3))
        x = nn.concat([kit.chain(x, (320, 1)), *kit.fork(near, 384), *kit.fork(far, 384), kit.pooled(x, 192)])
    return nn.global_head(x, hyper.classes, dropout=0.2)


def inception4(inputs: Inputs, hyper: Hyper) -> Tensor:
    """A longer stem and 4 + 7 + 3 modules."""
    kit = _Kit(hyper, scale=True)
    x = kit.step(kit.step(kit.shrink(inputs["image"], 32), 32, 3, padding="valid"), 64, 3)
    x = nn.concat([nn.max_pool(x, 3, 2), kit.shrink(x, 96)])
    near, far = kit.chain(x, (64, 1)), kit.chain(x, (64, 1), (64, _ROW), (64, _COLUMN))
    x = nn.concat([kit.step(near, 96, 3, padding="valid"), kit.step(far, 96, 3, padding="valid")])
    x = nn.concat([kit.shrink(x, 192), nn.max_pool(x, 3, 2)])
    for _ in range(4):
        branches = [kit.chain(x, (96, 1)), kit.chain(x, (64, 1), (96, 3)), kit.chain(x, (64, 1), (96, 3), (96, 3))]
        x = nn.concat([*branches, kit.pooled(x, 96)])
    x = nn.concat([kit.shrink(x, 384), kit.shrink(kit.chain(x, (192, 1), (224, 3)), 256), nn.max_pool(x, 3, 2)])
    for _ in range(7):
        branches = [
            kit.chain(x, (384, 1)),
            kit.chain(x, (192, 1), (224, _ROW), (256, _COLUMN)),
            kit.chain(x, (192, 1), (192, _COLUMN), (224, _ROW), (224, _COLUMN), (256, _ROW)),
        ]
        x = nn.concat([*branches, kit.pooled(x, 128)])
    tall = kit.chain(x, (256, 1), (256, _ROW), (320, _COLUMN))
    x = nn.concat([kit.shrink(kit.chain(x, (192, 1)), 192), kit.shrink(tall, 320), nn.max_pool(x, 3, 2)])
    for _ in range(3):
        near, far = kit.chain(x, (384, 1)), kit.chain(x, (384, 1), (448, _SHORT_COLUMN), (512, _SHORT_ROW))
        x = nn.concat([kit.chain(x, (256, 1)), *kit.fork(near, 256), *kit.fork(far, 256), kit.pooled(x, 256)])
    return nn.global_head(x, hyper.classes, dropout=0.2)
