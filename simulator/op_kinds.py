"""Kinds of ops: finer than classes, as far as kernels differ in speed.

A convolution has a kind for its direction (`fwd`, or a gradient: `dgrad` of the image, `wgrad` of the kernel) and for
its window, because libraries have other algorithms for each: `conv_fwd_1x1` is a matrix product, `conv_wgrad_3x3` may
be a Winograd transform. The kind of another op is its class, or `<class>_grad` if the gradient has a kernel of its own,
or one of a few types that are much slower than their class.

Arithmetic is done in tiles of channels. A layer with c channels in tiles of t therefore costs as much as one with
ceil(c / t) * t channels:

    tiled_flops = flops * ceil(in / t_in) * t_in / in * ceil(out / t_out) * t_out / out
"""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from driple.pipeline.graph.public import CLASSES, WINDOW, TrainingStep, class_of

FREE = "free"
"""Ops that no device executes: other names of a tensor, constants, control of loops."""
IMAGE_GRADIENT = "image_gradient"
"""The gradient of the input images: graphs have it, frameworks prune it, because nothing takes it."""

DIRECTIONS = {"": "fwd", "BackpropInput": "dgrad", "BackpropFilter": "wgrad"}
SHAPES = ("1x1", "3x3", "5x5", "rect", "other")
"""Windows; `3x3` and `5x5` (and larger squares) have stride 1, `rect` are 1x7 and similar, `other` has a stride."""

_APART = {
    "softmax": ("reduction", ("Softmax", "LogSoftmax")),
    "cross_entropy": ("reduction", ("SparseSoftmaxCrossEntropyWithLogits", "SoftmaxCrossEntropyWithLogits")),
    "random": ("elementwise", ("RandomUniform", "RandomStandardNormal", "TruncatedNormal")),
    "batch_matmul": ("matmul", ("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3")),
}
"""Kinds of a class with kernels of quite another speed, and their types."""
_KIND_OF_TYPE = {op: kind for kind, (_, types) in _APART.items() for op in types}

_FREE_CLASSES = ("alias", "control", "loop")
_WITH_GRADIENT = ("normalisation", "pooling")
_CONVOLVING = ("convolution", "convolution_gradient", "depthwise")
_BACKPROP = re.compile(r"BackpropInput|BackpropFilter")
_CLASS_OF_DIRECTION = {"fwd": "convolution", "dgrad": "convolution_gradient", "wgrad": "convolution_gradient"}
_CONVOLUTIONS = {f"conv_{way}_{shape}": _CLASS_OF_DIRECTION[way] for way in DIRECTIONS.values() for shape in SHAPES}
_DEPTHWISE = {f"depthwise_{way}": "depthwise" for way in DIRECTIONS.values()}
_GRADIENTS = {f"{name}_grad": name for name in _WITH_GRADIENT}
_PLAIN = {name: name for name in CLASSES if name not in _FREE_CLASSES}

CLASS_OF_KIND: dict[str, str] = {
    **_CONVOLUTIONS,
    **_DEPTHWISE,
    **_GRADIENTS,
    **_PLAIN,
    **{kind: of_class for kind, (of_class, _) in _APART.items()},
    FREE: FREE,
    IMAGE_GRADIENT: FREE,
}
"""The class whose parameters hold for a kind that a device file lacks."""
KINDS: tuple[str, ...] = tuple(CLASS_OF_KIND)

_NUMBER = {name: number for number, name in enumerate(KINDS)}
_MOST_IMAGE_CHANNELS = 3
_HEIGHT, _WIDTH, _INPUTS, _OUTPUTS, _STRIDE = (
    WINDOW.index(name) for name in ("height", "width", "inputs", "outputs", "stride")
)
# Row: direction, column: shape.
_GRID = np.array([[_NUMBER[f"conv_{way}_{shape}"] for shape in SHAPES] for way in DIRECTIONS.values()])
_FIRST_SHAPE = {_NUMBER[f"conv_{way}_{SHAPES[-1]}"]: row for row, way in enumerate(DIRECTIONS.values())}


def kind_numbers(step: TrainingStep) -> NDArray[np.int64]:
    """The position in KINDS of the kind of each op."""
    by_type = {op: _NUMBER[_kind_of_type(op)] for op in set(step.ops)}
    found: NDArray[np.int64] = np.array([by_type[op] for op in step.ops], dtype=np.int64)
    windows = step.windows
    for number, row in _FIRST_SHAPE.items():
        own = np.flatnonzero((found == number) & (windows[:, _HEIGHT] > 0))
        found[own] = _GRID[row, _shapes(windows[own])]
        if DIRECTIONS["BackpropInput"] in KINDS[number]:
            found[own[windows[own, _INPUTS] <= _MOST_IMAGE_CHANNELS]] = _NUMBER[IMAGE_GRADIENT]
    return found


def op_kinds(step: TrainingStep) -> list[str]:
    """The name of the kind of each op."""
    return [KINDS[number] for number in kind_numbers(step).tolist()]


def tiled_flops(step: TrainingStep, tile_in: float, tile_out: float) -> NDArray[np.float64]:
    """FLOPs of one execution of each op, with channels of convolutions rounded up to tiles (the formula above)."""
    inputs, outputs = step.windows[:, _INPUTS], step.windows[:, _OUTPUTS]
    known = (inputs > 0) & (outputs > 0)
    factor: NDArray[np.float64] = np.ones(len(step.ops))
    for channels, tile in ((inputs[known], tile_in), (outputs[known], tile_out)):
        if tile > 0:
            factor[known] *= np.ceil(channels / tile) * tile / channels
    return step.flops * factor


def _shapes(windows: NDArray[np.int64]) -> NDArray[np.int64]:
    """The position in SHAPES of each window."""
    height, width, stride = windows[:, _HEIGHT], windows[:, _WIDTH], windows[:, _STRIDE]
    square, dense = height == width, stride == 1
    tests = (square & (height == 1), square & dense & (height <= 3), square & dense & (height > 3), ~square)
    return np.select(tests, range(len(tests)), len(tests))


@lru_cache(maxsize=4096)
def _kind_of_type(op: str) -> str:
    """The kind of an op as far as its type tells; a convolution has the shape `other`."""
    if op in _KIND_OF_TYPE:
        return _KIND_OF_TYPE[op]
    name = class_of(op)
    if name in _FREE_CLASSES:
        return FREE
    if name in _CONVOLVING:
        backward = _BACKPROP.search(op)
        way = DIRECTIONS[backward.group() if backward else ""]
        return f"depthwise_{way}" if name == "depthwise" else f"conv_{way}_other"
    return f"{name}_grad" if name in _WITH_GRADIENT and "Grad" in op else name
