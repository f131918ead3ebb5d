"""Ops of ATen that are several ops of TensorFlow: a function for each adds them to a Conversion."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from driple.workloads.graphs import image_layout
from driple.workloads.graphs.step_builder import Tensor
from driple.workloads.torch_graphs.aten_ops import op_type
from driple.workloads.torch_graphs.torch_recorder import Call, Ref

if TYPE_CHECKING:
    from driple.workloads.torch_graphs.torch_graph import Conversion


def groups_of(call: Call) -> int:
    """Of a convolution; the last of its numbers."""
    return next(one for one in reversed(call.arguments) if isinstance(one, int))


def moving_averages(call: Call) -> list[Ref]:
    """The moving averages that a batch normalisation updates."""
    mean, variance = call.arguments[3:5]
    training = call.arguments[5] is not False
    return [one for one in (mean, variance) if isinstance(one, Ref) and training]


def _convolution(step: Conversion, call: Call, name: str) -> None:
    image, kernel, bias = call.arguments[:3]
    (output,) = call.made
    inputs, op = [image, kernel], _convolution_op(step, call, kernel, 0)
    if _is_transposed(call):
        # What is forward here is a gradient there: it takes the size of its output as well.
        inputs = [step.add_inner("Const", [], _SIZES, f"{name}/size"), kernel, image]
        op = _convolution_op(step, call, kernel, 1)
    if bias is None:
        step.add(op, inputs, [output], name)
    else:
        products = step.add_inner(op, inputs, step.shape(output), name)
        step.add("BiasAdd", [products, bias], [output], f"{name}/bias")


def _convolution_backward(step: Conversion, call: Call, name: str) -> None:
    gradient, image, kernel = call.arguments[:3]
    to_image, to_kernel, to_bias = call.outputs
    sizes = step.builder.op("ShapeN", [step.value(image), step.value(kernel)], [_SIZES, _SIZES], name=f"{name}/sizes")
    transposed = _is_transposed(call)
    if to_image is not None:
        inputs = [gradient, kernel] if transposed else [(sizes, 0), kernel, gradient]
        step.add(_convolution_op(step, call, kernel, 0 if transposed else 1), inputs, [to_image], f"{name}/image")
    if to_kernel is not None:
        inputs = [gradient, (sizes, 1), image] if transposed else [image, (sizes, 1), gradient]
        step.add(_convolution_op(step, call, kernel, 2), inputs, [to_kernel], f"{name}/kernel")
    if to_bias is not None:
        step.add("BiasAddGrad", [gradient], [to_bias], f"{name}/bias")


_SIZES = Tensor((4,), "int32")
_OF_DIMENSIONS = {
    "depthwise": tuple(f"DepthwiseConv2dNative{way}" for way in ("", "BackpropInput", "BackpropFilter")),
    "2d": tuple(f"Conv2D{way}" for way in ("", "BackpropInput", "BackpropFilter")),
    "3d": tuple(f"Conv3D{way}" for way in ("", "BackpropInputV2", "BackpropFilterV2")),
}


def _convolution_op(step: Conversion, call: Call, kernel: Ref, way: int) -> str:
    """`way` is 0 forward, 1 for the gradient of the image, 2 for that of the kernel."""
    tensor = step.weight(kernel)
    if tensor.shape is not None and len(tensor.shape) == 5:
        return _OF_DIMENSIONS["3d"][way]
    return _OF_DIMENSIONS["depthwise" if image_layout.is_depthwise(tensor, groups_of(call)) else "2d"][way]


def _is_transposed(call: Call) -> bool:
    """The first of the flags of a convolution."""
    return next(one for one in call.arguments if isinstance(one, bool))


def _added_product(op: str, sum_op: str) -> Callable[[Conversion, Call, str], None]:
    def split(step: Conversion, call: Call, name: str) -> None:
        term, *factors = call.inputs
        (output,) = call.made
        products = step.add_inner(op, factors, step.shape(output), name)
        step.add(sum_op, [products, term], [output], f"{name}/sum")

    return split


def batch_norm(step: Conversion, call: Call, name: str) -> None:
    """A batch normalisation, and the update of its moving averages."""
    number = step.add(op_type(call.name), call.inputs, call.made, name)
    for output, average in enumerate(moving_averages(call), start=1):
        step.average(step.step.weights.get(average.number, ""), (number, output))


SPLITTERS: dict[str, Callable[[Conversion, Call, str], None]] = {
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
    "addmm": _added_product("MatMul", "BiasAdd"),
    "baddbmm": _added_product("BatchMatMulV2", "AddV2"),
    "native_batch_norm": batch_norm,
    "cudnn_batch_norm": batch_norm,
    "miopen_batch_norm": batch_norm,
    "_native_batch_norm_legit": batch_norm,
    "_batch_norm_with_update": batch_norm,
}
