"""The ops that the micro-benchmark times, as a table: inputs by shape, and how to build the op.

They are the op types of training graphs. Sizes are those of layers of the zoo. A case is in the short form if its
`quick` is set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Build = Callable[..., Any]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class OpCase:
    """One op to time."""

    inputs: tuple[Shape, ...]
    """Shapes of float variables."""
    build: Build
    """From TensorFlow's `raw_ops` and the inputs to the op's outputs."""
    rotated: bool = True
    """Whether executions have different inputs in turn."""
    prepare: Build | None = None
    """What is computed once, before all executions, from the inputs; further arguments of `build`."""
    longest_chain: int = 32
    quick: bool = False


# side, input channels, output channels, kernel height and width, stride, whether in the short form
_LAYERS = (
    (32, 16, 64, 1, 1, 1, False),
    (28, 128, 128, 1, 1, 1, True),
    (14, 512, 128, 1, 1, 1, False),
    (8, 1024, 256, 1, 1, 1, False),
    (8, 256, 512, 1, 1, 2, False),
    (2, 512, 512, 1, 1, 1, False),
    (32, 3, 16, 3, 3, 1, False),
    (32, 16, 16, 3, 3, 1, True),
    (56, 32, 32, 3, 3, 1, False),
    (32, 64, 64, 3, 3, 1, True),
    (16, 128, 128, 3, 3, 1, False),
    (32, 40, 12, 3, 3, 1, False),
    (16, 100, 12, 3, 3, 1, False),
    (8, 64, 64, 3, 3, 1, False),
    (4, 256, 256, 3, 3, 1, False),
    (2, 512, 512, 3, 3, 1, False),
    (28, 16, 32, 5, 5, 1, False),
    (16, 32, 64, 5, 5, 1, True),
    (8, 64, 128, 5, 5, 1, False),
    (4, 192, 192, 5, 5, 1, False),
    (17, 64, 64, 1, 7, 1, True),
    (17, 128, 128, 7, 1, 1, False),
    (8, 192, 192, 1, 3, 1, False),
    (4, 96, 96, 7, 1, 1, False),
    (64, 3, 64, 7, 7, 2, False),
    (32, 16, 32, 3, 3, 2, True),
    (28, 128, 256, 3, 3, 2, False),
    (8, 64, 128, 3, 3, 2, False),
    # As small as those of narrow models: what a convolution costs by itself.
    (8, 16, 16, 1, 1, 1, False),
    (4, 32, 128, 1, 1, 1, True),
    (8, 16, 16, 3, 3, 1, True),
    (2, 64, 64, 3, 3, 1, False),
)
_DEPTHWISE = ((32, 64, 1, True), (16, 256, 1, False), (4, 512, 1, False), (28, 128, 2, False))  # side, channels, stride
_PRODUCTS = (  # rows, inner, columns, whether the second factor is transposed, whether in the short form
    (1024, 1024, 1024, False, True),
    (256, 512, 2048, False, True),
    (2048, 256, 512, True, False),
    (32, 4096, 1024, False, True),
    (32, 1024, 4096, True, False),
    (16, 256, 256, False, False),
    (512, 32, 512, False, False),
)
_SIZES = (1 << 14, 1 << 17, 1 << 20)
_QUICK_SIZES = (1 << 17, 1 << 20)
_IMAGES = ((32, 16), (28, 128), (16, 100), (8, 256))  # side, channels
_TINY = (4,)
_LONG_CHAIN = 512
"""For ops that take less than a microsecond."""
_MOST_IMAGE_CHANNELS = 3
"""An image with more channels has a gradient; that of the input images is never computed."""


def op_cases(batch: int, quick: bool = False) -> list[OpCase]:
    """All cases for this number of examples, or those of the short form."""
    parts = (_convolutions, _depthwise, _products, _elementwise, _normalisation, _pooling, _reductions, _movement)
    made = [case for part in parts for case in part(batch)]
    made += [*_lookups(batch), *_updates(batch), *_tiny(batch)]
    return [case for case in made if case.quick] if quick else made


def _convolutions(batch: int) -> Iterator[OpCase]:
    for side, inputs, outputs, height, width, stride, quick in _LAYERS:
        small = -(-side // stride)
        image, kernel = (batch, side, side, inputs), (height, width, inputs, outputs)
        result = (batch, small, small, outputs)
        options = {"strides": [1, stride, stride, 1], "padding": "SAME"}
        yield OpCase((image, kernel), lambda r, x, w, o=options: r.Conv2D(input=x, filter=w, **o), quick=quick)
        if inputs > _MOST_IMAGE_CHANNELS:
            yield OpCase(
                (kernel, result),
                lambda r, w, g, o=options, s=image: r.Conv2DBackpropInput(input_sizes=s, filter=w, out_backprop=g, **o),
                quick=quick,
            )
        yield OpCase(
            (image, result),
            lambda r, x, g, o=options, s=kernel: r.Conv2DBackpropFilter(input=x, filter_sizes=s, out_backprop=g, **o),
            quick=quick,
        )


def _depthwise(batch: int) -> Iterator[OpCase]:
    for side, channels, stride, quick in _DEPTHWISE:
        small = -(-side // stride)
        image, kernel, result = (batch, side, side, channels), (3, 3, channels, 1), (batch, small, small, channels)
        options = {"strides": [1, stride, stride, 1], "padding": "SAME"}
        yield OpCase(
            (image, kernel), lambda r, x, w, o=options: r.DepthwiseConv2dNative(input=x, filter=w, **o), quick=quick
        )
        yield OpCase(
            (kernel, result),
            lambda r, w, g, o=options, s=image: r.DepthwiseConv2dNativeBackpropInput(
                input_sizes=s, filter=w, out_backprop=g, **o
            ),
            quick=quick,
        )
        yield OpCase(
            (image, result),
            lambda r, x, g, o=options, s=kernel: r.DepthwiseConv2dNativeBackpropFilter(
                input=x, filter_sizes=s, out_backprop=g, **o
            ),
            quick=quick,
        )


def _products(batch: int) -> Iterator[OpCase]:
    for rows, inner, columns, turned, quick in _PRODUCTS:
        second = (columns, inner) if turned else (inner, columns)
        yield OpCase(((rows, inner), second), lambda r, a, b, t=turned: r.MatMul(a=a, b=b, transpose_b=t), quick=quick)
    for count, side, inner in ((8 * batch, 16, 64), (8 * batch, 64, 64)):
        yield OpCase(((count, side, inner), (count, inner, side)), lambda r, a, b: r.BatchMatMulV2(x=a, y=b))


def _elementwise(batch: int) -> Iterator[OpCase]:
    for size in _SIZES:
        quick = size in _QUICK_SIZES
        one, rows = (size,), (size // 64, 64)
        yield OpCase((one,), lambda r, a: r.Relu(features=a), quick=quick)
        yield OpCase((one, one), lambda r, g, a: r.ReluGrad(gradients=g, features=a))
        yield OpCase((one, one), lambda r, a, b: r.AddV2(x=a, y=b), quick=quick)
        yield OpCase((one, one), lambda r, a, b: r.Mul(x=a, y=b))
        yield OpCase((rows, (64,)), lambda r, a, b: r.BiasAdd(value=a, bias=b))
        yield OpCase((one, one), lambda r, a, b: r.AddN(inputs=[a, b]))
    yield OpCase(((1 << 18,),), lambda r, a: r.Tanh(x=a))
    for size in _QUICK_SIZES:
        yield OpCase((_TINY,), lambda r, _, n=size: r.RandomUniform(shape=[n], dtype="float32"), rotated=False)


def _normalisation(batch: int) -> Iterator[OpCase]:
    for side, channels in _IMAGES:
        image, row = (batch, side, side, channels), (channels,)
        quick = side == _IMAGES[0][0]
        yield OpCase(
            (image, row, row),
            lambda r, x, s, o: r.FusedBatchNormV3(
                x=x, scale=s, offset=o, mean=[], variance=[], is_training=True, epsilon=1e-3
            ),
            quick=quick,
        )
        yield OpCase(
            (image, image, row, row, row),
            lambda r, g, x, s, m, v: r.FusedBatchNormGradV3(
                y_backprop=g, x=x, scale=s, reserve_space_1=m, reserve_space_2=v, reserve_space_3=m, epsilon=1e-3
            ),
            quick=quick,
        )


def _pooling(batch: int) -> Iterator[OpCase]:
    for side, channels in _IMAGES:
        half = side // 2
        image, small = (batch, side, side, channels), (batch, half, half, channels)
        quick = side == _IMAGES[0][0]
        for window in (2, 3):
            options = {"ksize": [1, window, window, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}
            yield OpCase((image,), lambda r, x, o=options: r.MaxPool(input=x, **o), quick=quick)
            yield OpCase((image,), lambda r, x, o=options: r.AvgPool(value=x, **o))
            # Only with its forward op beside it does TensorFlow choose oneDNN's kernel, as in training. Its own kernel
            # takes 50 times as long.
            yield OpCase(
                (image, small),
                lambda r, x, g, y, o=options: r.MaxPoolGrad(orig_input=x, orig_output=y, grad=g, **o),
                rotated=False,
                prepare=lambda r, x, g, o=options: r.MaxPool(input=x, **o),
                quick=quick,
            )
            yield OpCase((small,), lambda r, g, o=options, s=image: r.AvgPoolGrad(orig_input_shape=s, grad=g, **o))


def _reductions(batch: int) -> Iterator[OpCase]:
    for side, channels in _IMAGES:
        image = (batch, side, side, channels)
        quick = side == _IMAGES[0][0]
        yield OpCase((image,), lambda r, x: r.Mean(input=x, axis=[1, 2]), quick=quick)
        yield OpCase((image,), lambda r, g: r.BiasAddGrad(out_backprop=g), quick=quick)
    yield OpCase(((1 << 20,),), lambda r, x: r.Sum(input=x, axis=[0]))
    for rows, columns in ((32, 1000), (512, 1000), (256, 8192)):
        yield OpCase(((rows, columns),), lambda r, x: r.Softmax(logits=x), quick=rows == 512)
        labels = [(7919 * k) % columns for k in range(rows)]
        yield OpCase(
            ((rows, columns),),
            lambda r, x, n=labels: r.SparseSoftmaxCrossEntropyWithLogits(features=x, labels=n),
            quick=rows == 512,
        )


def _movement(batch: int) -> Iterator[OpCase]:
    for side, channels in _IMAGES:
        image = (batch, side, side, channels)
        quick = side == _IMAGES[0][0]
        yield OpCase((image, image), lambda r, a, b: r.ConcatV2(values=[a, b], axis=3), quick=quick)
        yield OpCase((image,), lambda r, x: r.Pad(input=x, paddings=[[0, 0], [1, 1], [1, 1], [0, 0]]))
        yield OpCase((image,), lambda r, x: r.Transpose(x=x, perm=[0, 3, 1, 2]))
        half = (batch, side // 2, side, channels)
        yield OpCase((image,), lambda r, x, s=half: r.Slice(input=x, begin=[0, 0, 0, 0], size=s), quick=quick)


def _lookups(batch: int) -> Iterator[OpCase]:
    for rows, width in ((8 * batch, 64), (64 * batch, 256)):
        numbers = [(7919 * k) % 8192 for k in range(rows)]
        yield OpCase(
            ((8192, width),), lambda r, t, n=numbers: r.GatherV2(params=t, indices=n, axis=0), quick=width == 256
        )
        yield OpCase(
            ((rows, width),),
            lambda r, g, n=numbers: r.UnsortedSegmentSum(data=g, segment_ids=n, num_segments=8192),
            quick=width == 256,
        )


def _updates(_: int) -> Iterator[OpCase]:
    for size in _SIZES:
        one = (size,)
        yield OpCase(
            (one, one, one),
            lambda r, v, m, g: r.ApplyMomentum(var=v, accum=m, lr=1e-3, grad=g, momentum=0.9),
            quick=size in _QUICK_SIZES,
        )


def _tiny(_: int) -> Iterator[OpCase]:
    """Ops of a few bytes: what an op costs by itself."""
    long: dict[str, Any] = {"longest_chain": _LONG_CHAIN, "rotated": False, "quick": True}
    yield OpCase((_TINY,), lambda r, a: r.Relu(features=a), **long)
    yield OpCase((_TINY, _TINY), lambda r, a, b: r.AddV2(x=a, y=b), **long)
    yield OpCase((_TINY, _TINY), lambda r, a, b: r.Mul(x=a, y=b), **long)
    yield OpCase((_TINY,), lambda r, a: r.Sum(input=a, axis=[0]), **long)
    yield OpCase((_TINY,), lambda r, a: r.Slice(input=a, begin=[0], size=[1]), **long)
