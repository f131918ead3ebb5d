"""Shapes of the tensors of an ONNX graph, op by op.

Exporters write ops that compute shapes: the size of an image, times the heads, for a Reshape. `infer_shapes` of onnx
gives up at some of them, and then at all that follows. Here ops on small tensors whose values are known are computed,
and each next op is inferred with these values.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator

MOST_ELEMENTS = 1024
"""Of a tensor whose value is computed."""
_COMPUTED = frozenset(
    (
        *("Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Concat", "Split", "Slice", "Gather"),
        *("Expand", "Tile", "ConstantOfShape", "Range", "Pad", "Where", "Add", "Sub", "Mul", "Div", "Mod", "Pow"),
        *("Neg", "Abs", "Sqrt", "Floor", "Ceil", "Round", "Max", "Min", "Equal", "Greater", "GreaterOrEqual", "Less"),
        *("LessOrEqual", "Not", "And", "Or", "ReduceProd", "ReduceSum", "ReduceMax", "ReduceMin", "ScatterND"),
    )
)
"""Ops that are computed. None of them has a graph inside, which might never end."""


class Shapes:
    """Types of all tensors of a graph, as far as they can be known."""

    def __init__(self, model: Any) -> None:
        graph = model.graph
        self._opsets = list(model.opset_import)
        self._versions = {one.domain or "": one.version for one in model.opset_import}
        self._ir_version = model.ir_version
        self._values: dict[str, Any] = {}
        self.types: dict[str, Any] = {one.name: one.type for one in graph.input}
        # What the file says, for ops that onnx does not know.
        self._said = {one.name: one.type for one in (*graph.value_info, *graph.output)}
        for one in graph.initializer:
            self.types[one.name] = onnx.helper.make_tensor_type_proto(one.data_type, list(one.dims))
            if _has_value(one):
                self._values[one.name] = numpy_helper.to_array(one)
        for node in graph.node:
            self._infer(node)
            self._compute(node)

    def _infer(self, node: Any) -> None:
        try:
            schema = onnx.defs.get_schema(node.op_type, self._versions.get(node.domain, 1), node.domain)
            has_graph = any(one.HasField("g") or one.graphs for one in node.attribute)
            taken = {name: self.types.get(name, _UNKNOWN) for name in node.input if name}
            found = onnx.shape_inference.infer_node_outputs(
                schema,
                node,
                {**self.types, **taken} if has_graph else taken,
                {name: numpy_helper.from_array(self._values[name]) for name in node.input if name in self._values},
                opset_imports=self._opsets,
                ir_version=self._ir_version,
            )
        except _NOT_INFERRED:
            found = {}
        for name in filter(None, node.output):
            known = found.get(name) or self._said.get(name)
            if known is not None:
                self.types[name] = known

    def _compute(self, node: Any) -> None:
        if node.op_type == "Constant":
            values = [
                numpy_helper.to_array(one.t) for one in node.attribute if one.name == "value" and _has_value(one.t)
            ]
            values += [np.array(onnx.helper.get_attribute_value(one)) for one in node.attribute if one.name in _NUMBERS]
        elif node.op_type in ("Shape", "Size"):
            values = self._of_shape(node)
        elif node.op_type in _COMPUTED and self._is_small(node):
            values = self._run(node)
        else:
            return
        self._values.update(zip(node.output, values, strict=False))

    def _of_shape(self, node: Any) -> list[Any]:
        shape = shape_of(self.types.get(node.input[0]))
        if shape is None or -1 in shape:
            return []
        if node.op_type == "Size":
            return [np.array(math.prod(shape), dtype=np.int64)]
        ends = {one.name: one.i for one in node.attribute}
        return [np.array(shape[ends.get("start", 0) : ends.get("end", len(shape))], dtype=np.int64)]

    def _is_small(self, node: Any) -> bool:
        if not all(name in self._values for name in node.input if name):
            return False
        shapes = [shape_of(self.types.get(name)) for name in node.output]
        return all(shape is not None and 0 <= math.prod(shape) <= MOST_ELEMENTS for shape in shapes)

    def _run(self, node: Any) -> list[Any]:
        try:
            given = {name: self._values[name] for name in node.input if name}
            found: list[Any] = ReferenceEvaluator(node, opsets=self._versions).run(None, given)
            return found
        except Exception:  # any that NumPy raises for numbers from a file
            return []


_UNKNOWN = onnx.TypeProto(tensor_type=onnx.TypeProto.Tensor(elem_type=onnx.TensorProto.FLOAT))
_NOT_INFERRED = (
    onnx.defs.SchemaError,
    onnx.shape_inference.InferenceError,
    onnx.checker.ValidationError,
    RuntimeError,
    ValueError,
)
_NUMBERS = ("value_int", "value_ints", "value_float", "value_floats")


def _constant(attribute: Any) -> Iterable[Any]:
    if attribute.name == "value" and _has_value(attribute.t):
        yield numpy_helper.to_array(attribute.t)
    elif attribute.name in _NUMBERS:
        yield np.array(onnx.helper.get_attribute_value(attribute))


def shape_of(kind: Any) -> tuple[int, ...] | None:
    """The shape in a type, with -1 for an unknown dimension; None if the rank is unknown."""
    if kind is None or not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
        return None
    return tuple(int(one.dim_value) if one.HasField("dim_value") else -1 for one in kind.tensor_type.shape.dim)


def _has_value(tensor: Any) -> bool:
    count = math.prod(tensor.dims)
    data = ("raw_data", "float_data", "int32_data", "int64_data", "double_data", "uint64_data")
    return count <= MOST_ELEMENTS and (count == 0 or any(len(getattr(tensor, name)) for name in data))
