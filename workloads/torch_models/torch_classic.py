"""Plain stacks of convolutions and dense layers (workloads/models/classic.py): LeNet, VGG."""

from __future__ import annotations

from torch import nn

from driple.workloads.torch_models.torch_layers import OfImages, Sizes, conv, dense


def lenet(sizes: Sizes) -> nn.Module:
    """LeNet-5 in the size that TF's CNN benchmarks and tutorials use."""
    first, second, hidden = (sizes.channels(number) for number in (32, 64, 512))
    stacks = [*_conv(3, first, 5), nn.MaxPool2d(2, 2), *_conv(first, second, 5), nn.MaxPool2d(2, 2)]
    side = sizes.size // 4
    return OfImages(*stacks, nn.Flatten(), *_dense(second * side**2, hidden), _logits(hidden, sizes.classes))


def vgg(sizes: Sizes, *, convolutions: tuple[int, ...]) -> nn.Module:
    """Simonyan and Zisserman 2014 (arXiv 1409.1556): five stages of 3x3 convolutions."""
    layers: list[nn.Module] = []
    channels, hidden = 3, sizes.channels(4096)
    for stage, count in enumerate(convolutions):
        for _ in range(count):
            filters = sizes.channels(min(64 * 2**stage, 512))
            layers += _conv(channels, filters, 3)
            channels = filters
        layers.append(nn.MaxPool2d(2, 2))
    flat = channels * (sizes.size // 2 ** len(convolutions)) ** 2
    layers += [nn.Flatten(), *_dense(flat, hidden), nn.Dropout(0.5), *_dense(hidden, hidden), nn.Dropout(0.5)]
    return OfImages(*layers, _logits(hidden, sizes.classes))


def _conv(channels: int, filters: int, kernel: int) -> list[nn.Module]:
    return [conv(channels, filters, kernel, bias=True), nn.ReLU()]


def _dense(units: int, outputs: int) -> list[nn.Module]:
    return [dense(units, outputs, stddev=(2 / units) ** 0.5), nn.ReLU()]


def _logits(units: int, classes: int) -> nn.Module:
    # Without batch normalisation its input is large: it must start near zero.
    return dense(units, classes, stddev=0.01)
