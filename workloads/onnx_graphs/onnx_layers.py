"""Layers whose training has ops of its own: convolutions, products, batch normalisation, recurrent layers.

Each has two functions: one adds its forward ops to a Derivation, the other its gradients.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from driple.workloads.graphs import image_layout
from driple.workloads.graphs.step_builder import Tensor, Value
from driple.workloads.onnx_graphs.onnx_file import attribute, named

if TYPE_CHECKING:
    from driple.workloads.onnx_graphs.onnx_graph import Derivation

CONVOLUTIONS = ("Conv", "ConvTranspose")


def _convolution_op(step: Derivation, node: Any, way: int) -> str:
    """`way` is 0 for the sum over windows, 1 for its gradient of the image, 2 for that of the kernel."""
    kernel, groups = step.tensor(node.input[1]), int(attribute(node, "group", 1))
    if kernel.shape is not None and len(kernel.shape) == 5:
        return f"Conv3D{('', 'BackpropInputV2', 'BackpropFilterV2')[way]}"
    depthwise = image_layout.is_depthwise(kernel, groups)
    name = "DepthwiseConv2dNative" if depthwise else "Conv2D"
    return f"{name}{('', 'BackpropInput', 'BackpropFilter')[way]}"


_SIZES = Tensor((4,), "int32")


def _convolution(step: Derivation, node: Any, name: str) -> None:
    image, kernel, *bias = node.input
    output = node.output[0]
    if node.op_type == "Conv":
        op, inputs = _convolution_op(step, node, 0), [step.value(image), step.value(kernel)]
    else:  # the gradient of a convolution, which takes the size of its output too
        size = step.builder.op("Const", [], [_SIZES], name=f"{name}/size"), 0
        op, inputs = _convolution_op(step, node, 1), [size, step.value(kernel), step.value(image)]
    _with_bias(step, op, inputs, bias, output, name)


def _with_bias(
    step: Derivation, op: str, inputs: list[Value | None], bias: Sequence[str], output: str, name: str, **more: Any
) -> None:
    if any(bias):
        sums = step.add_inner(op, inputs, output, name, **more)
        step.add("BiasAdd", [sums, step.value(bias[0])], [output], f"{name}/bias")
    else:
        step.add(op, inputs, [output], name, **more)


def _convolution_backward(step: Derivation, node: Any, gradients: Sequence[Value], name: str) -> None:
    image, kernel, *bias = node.input
    transposed = node.op_type == "ConvTranspose"
    at_image, at_kernel = step.value(image), step.value(kernel)
    sizes = step.builder.op("ShapeN", [at_image, at_kernel], [_SIZES, _SIZES], name=f"{name}/sizes")
    if image in step.trained:
        inputs = [gradients[0], at_kernel] if transposed else [(sizes, 0), at_kernel, gradients[0]]
        op = _convolution_op(step, node, 0 if transposed else 1)
        step.give(image, step.add_inner(op, inputs, image, f"{name}/image"))
    if kernel in step.trained:
        inputs = [gradients[0], (sizes, 1), at_image] if transposed else [at_image, (sizes, 1), gradients[0]]
        step.give(kernel, step.add_inner(_convolution_op(step, node, 2), inputs, kernel, f"{name}/kernel"))
    _bias_backward(step, bias, gradients[0], name)


def _bias_backward(step: Derivation, bias: Sequence[str], gradient: Value, name: str) -> None:
    for each in bias[:1]:
        if each in step.trained:
            step.give(each, step.add_inner("BiasAddGrad", [gradient], each, f"{name}/bias"))


def _product_op(step: Derivation, node: Any) -> str:
    ranks = [len(step.tensor(name).shape or ()) for name in node.input[:2]]
    return "BatchMatMulV2" if min(ranks) > 2 else "MatMul"


def _product_flops(step: Derivation, node: Any) -> float:
    """Of the product and of each of its gradients: two for each pair of numbers that meet."""
    shape = step.tensor(node.input[0]).shape
    inner = shape[-2 if attribute(node, "transA", 0) else -1] if shape else -1
    return 2.0 * step.elements(node.output[0]) * (inner if inner >= 0 else math.nan)


def _product(step: Derivation, node: Any, name: str) -> None:
    inputs = [step.value(one) for one in node.input[:2]]
    flops = _product_flops(step, node)
    _with_bias(step, _product_op(step, node), inputs, node.input[2:], node.output[0], name, flops=flops)


def _product_backward(step: Derivation, node: Any, gradients: Sequence[Value], name: str) -> None:
    op, flops = _product_op(step, node), _product_flops(step, node)
    for place, (one, other) in enumerate((node.input[:2], node.input[1::-1])):
        if one in step.trained:
            inputs = [gradients[0], step.value(other)]
            step.give(one, step.add_inner(op, inputs, one, f"{name}/{place}", flops=flops))
    _bias_backward(step, node.input[2:], gradients[0], name)


def _batch_norm(step: Derivation, node: Any, name: str) -> None:
    """In training it also gives mean and variance of the batch, and updates the moving averages."""
    output, *others = node.output
    per_channel = [step.shape(one) for one in node.input[3:5]]
    number = step.builder.op(
        "FusedBatchNormV3", _values(step, node.input), [step.shape(output), *per_channel], name=name
    )
    step.made(output, (number, 0))
    for place, (average, other) in enumerate(zip(node.input[3:5], [*others, "", ""], strict=False), start=1):
        if other:
            step.made(other, (number, place))
        if average in step.weights:
            step.builder.average(average, (number, place))


def _batch_norm_backward(step: Derivation, node: Any, gradients: Sequence[Value], name: str) -> None:
    wanted = [each for each in dict.fromkeys(node.input[:3]) if each in step.trained]
    step.joint("FusedBatchNormGradV3", [gradients[0], *_values(step, node.input[:2])], wanted, name)


def _recurrent_flops(step: Derivation, node: Any) -> float:
    """Two for each weight, example and element of the sequence."""
    shape = step.tensor(node.input[0]).shape
    pairs = math.nan if shape is None or -1 in shape else float(math.prod(shape[:2]))
    return 2.0 * pairs * sum(step.elements(one) for one in node.input[1:3])


def _recurrent(step: Derivation, node: Any, name: str) -> None:
    step.add("CudnnRNNV3", _values(step, node.input), node.output, name, flops=_recurrent_flops(step, node))


def _recurrent_backward(step: Derivation, node: Any, gradients: Sequence[Value], name: str) -> None:
    wanted = [each for each in dict.fromkeys(named(node.input)) if each in step.trained]
    inputs = [*gradients, *_values(step, node.input)]
    step.joint("CudnnRNNBackpropV3", inputs, wanted, name, flops=2 * _recurrent_flops(step, node))


def _values(step: Derivation, names: Iterable[str]) -> list[Value | None]:
    """The tensors of these names."""
    return [step.value(name) for name in names]


_PRODUCTS = ("MatMul", "Gemm")
_RECURRENT = ("LSTM", "GRU", "RNN")
Forward = Callable[["Derivation", Any, str], None]
Backward = Callable[["Derivation", Any, Sequence[Value], str], None]
FORWARD: dict[str, Forward] = {
    **dict.fromkeys(CONVOLUTIONS, _convolution),
    **dict.fromkeys(_PRODUCTS, _product),
    **dict.fromkeys(_RECURRENT, _recurrent),
    "BatchNormalization": _batch_norm,
}
BACKWARD: dict[str, Backward] = {
    **dict.fromkeys(CONVOLUTIONS, _convolution_backward),
    **dict.fromkeys(_PRODUCTS, _product_backward),
    **dict.fromkeys(_RECURRENT, _recurrent_backward),
    "BatchNormalization": _batch_norm_backward,
}
