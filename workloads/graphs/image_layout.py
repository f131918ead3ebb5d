"""Order of dimensions: PyTorch and ONNX have images as [batch, channels, height, width], graph files channels last.

An image is what a convolution or a pooling takes or gives, and what elementwise ops make of images. Kernels of
convolutions are [outputs, inputs, height, width], and [height, width, inputs, outputs] in the file. A convolution over
a sequence is one over an image of height 1.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from driple.workloads.graphs.step_builder import Tensor

RANKS = (3, 4, 5)
"""Of images in one to three dimensions."""


def image(tensor: Tensor) -> Tensor:
    """An image with its channels last."""
    if tensor.shape is None or len(tensor.shape) not in RANKS:
        return tensor
    batch, channels, *sides = tensor.shape
    return replace(tensor, shape=(batch, *_two_at_least(sides), channels))


def kernel(tensor: Tensor, groups: int = 1) -> Tensor:
    """A kernel with its window first; of a depthwise convolution [height, width, inputs, outputs per input]."""
    if tensor.shape is None or len(tensor.shape) not in RANKS:
        return tensor
    outputs, inputs, *window = tensor.shape
    channels = (groups, outputs // groups) if is_depthwise(tensor, groups) else (inputs, outputs)
    return replace(tensor, shape=(*_two_at_least(window), *channels))


def is_depthwise(tensor: Tensor, groups: int) -> bool:
    """Whether each channel has kernels of its own."""
    return groups > 1 and tensor.shape is not None and tensor.shape[1] == 1


def images_among(tensors: Sequence[Tensor], links: Iterable[Sequence[int]], known: Iterable[int]) -> set[int]:
    """The tensors that are images, by their numbers.

    Args:
        tensors: all tensors.
        links: groups of tensors whose dimensions have the same meaning if they have the same rank.
        known: some that are images.
    """
    parent: dict[Hashable, Hashable] = {}

    def find(one: Hashable) -> Hashable:
        while (above := parent.setdefault(one, one)) != one:
            parent[one] = parent.setdefault(above, above)
            one = above
        return one

    for group in links:
        first: dict[int, int] = {}
        for number in group:
            shape = tensors[number].shape
            if shape is not None and len(shape) in RANKS:
                parent[find(number)] = find(first.setdefault(len(shape), number))
    roots = {find(number) for number in known}
    return {number for number in range(len(tensors)) if find(number) in roots}


def _two_at_least(sides: Sequence[int]) -> Sequence[int]:
    return (1, *sides) if len(sides) == 1 else sides
