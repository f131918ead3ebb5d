"""FLOPs of the ops that dominate a training step, computed from shapes alone.

TensorFlow counts the FLOPs of its graphs itself. Those of GraphDef files, of PyTorch and of ONNX are counted here.
These formulas equal TensorFlow's, except for gradients of strided convolutions without padding, where TensorFlow uses
the larger side (10 % apart in AlexNet). A multiply-add is two FLOPs. Images are [batch, height, width, channels],
kernels [height, width, inputs, outputs]. The inner dimension k of a product follows from numbers of elements:
(m k)(k n) / (m n) = k^2.
"""

from __future__ import annotations

import math
from typing import Callable, Dict, Optional, Sequence

Shape = Optional[Sequence[int]]
Shapes = Sequence[Shape]

UNKNOWN = math.nan


def flops(op: str, inputs: Shapes, outputs: Shapes) -> float:
    """FLOPs of one execution; NaN if there is no formula or a needed shape is unknown."""
    formula = _FORMULAS.get(op)
    if formula is None:
        return UNKNOWN
    try:
        return formula(inputs, outputs)
    except (IndexError, ZeroDivisionError, OverflowError, ValueError):  # a graph that TensorFlow would refuse
        return UNKNOWN


def _elements(shape: Shape) -> float:
    if shape is None or any(size < 0 for size in shape):
        return UNKNOWN
    return math.prod(map(float, shape))


def _each_output(_: Shapes, outputs: Shapes) -> float:
    return _elements(outputs[0])


def _window(filters: Shape, moved: Shape) -> float:
    """One multiply-add per weight of a filter, for every element that the filters write or read."""
    return 2.0 * _elements(moved) * _elements(None if filters is None else filters[:-1])


def _depthwise(filters: Shape, moved: Shape) -> float:
    return 2.0 * _elements(moved) * _elements(None if filters is None else filters[:2])


def _product(inputs: Shapes, outputs: Shapes) -> float:
    made = _elements(outputs[0])
    batch = _elements(None if outputs[0] is None else outputs[0][:-2])
    inner = math.sqrt(_elements(inputs[0]) * _elements(inputs[1]) / (made * batch))
    return 2.0 * made * inner


def _sum_of_all(inputs: Shapes, outputs: Shapes) -> float:
    return _elements(outputs[0]) * (len(inputs) - 1)


def _reduced(inputs: Shapes, outputs: Shapes) -> float:
    return _elements(inputs[0]) - _elements(outputs[0])


_FORMULAS: Dict[str, Callable[[Shapes, Shapes], float]] = {
    "Conv2D": lambda inputs, outputs: _window(inputs[1], outputs[0]),
    "Conv2DBackpropInput": lambda inputs, _: _window(inputs[1], inputs[2]),
    "Conv2DBackpropFilter": lambda inputs, outputs: _window(outputs[0], inputs[2]),
    "Conv3D": lambda inputs, outputs: _window(inputs[1], outputs[0]),
    "Conv3DBackpropInputV2": lambda inputs, _: _window(inputs[1], inputs[2]),
    "Conv3DBackpropFilterV2": lambda inputs, outputs: _window(outputs[0], inputs[2]),
    "DepthwiseConv2dNative": lambda inputs, outputs: _depthwise(inputs[1], outputs[0]),
    "DepthwiseConv2dNativeBackpropInput": lambda inputs, _: _depthwise(inputs[1], inputs[2]),
    "DepthwiseConv2dNativeBackpropFilter": lambda inputs, outputs: _depthwise(outputs[0], inputs[2]),
    "MatMul": _product,
    "BatchMatMul": _product,
    "BatchMatMulV2": _product,
    "BatchMatMulV3": _product,
    "AddN": _sum_of_all,
    "BiasAddGrad": _reduced,
    **dict.fromkeys(("Add", "AddV2", "Sub", "Mul", "RealDiv", "BiasAdd", "AssignSub", "AssignAdd"), _each_output),
}
