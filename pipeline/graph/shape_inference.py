"""Output shapes of ops: those in the file, else inferred from the inputs.

A GraphDef has shapes if it was made with `as_graph_def(add_shapes=True)`. Otherwise it has those of constants,
placeholders and variables, and TensorFlow infers the rest when it imports the graph. `shape_rules.py` does so for the
ops of ordinary training graphs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from driple.pipeline.graph.function_inlining import Node
from driple.pipeline.graph.graphdef_proto import Message, dtype_name
from driple.pipeline.graph.levels import LOOP_BACK, levels
from driple.pipeline.graph.shape_rules import OpView, Shape, Values, follow

MOST_VALUES = 64
"""A tensor with more elements is not a shape, axis or padding."""
MOST_AXES = 32
LARGEST = 2**40
"""Limit of a dimension or an element. These three limits bound the work for any file."""


def output_shapes(nodes: Sequence[Node], index: Mapping[str, int]) -> list[list[Shape] | None]:
    """The shape of each output of each node; None if even the number of outputs is unknown."""
    if any("_output_shapes" in node.attributes for node in nodes):  # then an op without the attribute has no outputs
        return [_stated(node) or [] for node in nodes]
    return _inferred(nodes, index)


def _inferred(nodes: Sequence[Node], index: Mapping[str, int]) -> list[list[Shape] | None]:
    edges = [(index[name], position) for position, node in enumerate(nodes) for name, _ in node.inputs]
    level, _ = levels([node.op for node in nodes], np.asarray(edges, dtype=np.int64).reshape(-1, 2))
    shapes: list[list[Shape] | None] = [None] * len(nodes)
    values: list[list[Values]] = [[] for _ in nodes]
    for position in np.argsort(level, kind="stable").tolist():
        node = nodes[position]
        shapes[position] = _stated(node)
        if node.op == "Const":
            values[position] = [_constant(node)]
        if shapes[position] is not None:
            continue
        sources = [(index[name], output) for name, output in node.inputs if nodes[index[name]].op not in LOOP_BACK]
        view = OpView(
            node.op,
            node.attributes,
            [_nth(shapes[source] or [], output) for source, output in sources],
            [_nth(values[source], output) for source, output in sources],
        )
        try:
            found, elements = follow(view)
        except (ArithmeticError, LookupError, TypeError, ValueError):  # TensorFlow would refuse this graph
            continue
        shapes[position] = found and [_sane(shape, MOST_AXES) for shape in found]
        values[position] = [_sane(items, MOST_VALUES) for items in elements]
    return shapes


def _sane(items: list[int] | None, most: int) -> list[int] | None:
    if items is None or len(items) > most or any(abs(item) > LARGEST for item in items):
        return None
    return items


def _nth(items: Sequence[list[int] | None], position: int) -> list[int] | None:
    return items[position] if position < len(items) else None


def _stated(node: Node) -> list[Shape] | None:
    value = node.attributes.get("_output_shapes")
    if value is not None:
        return [shape_of(shape) for shape in value.list.shape]
    for key in ("value", "shape"):
        value = node.attributes.get(key)
        if value is not None and value.HasField("tensor"):
            return [shape_of(value.tensor.tensor_shape)]
        if value is not None and value.HasField("shape"):
            return [shape_of(value.shape)]
    return None


def _constant(node: Node) -> Values:
    value = node.attributes.get("value")
    if value is None or not value.HasField("tensor"):
        return None
    tensor = value.tensor
    shape, dtype = shape_of(tensor.tensor_shape), dtype_name(tensor.dtype)
    if dtype not in ("int32", "int64") or shape is None or len(shape) > 2:
        return None
    count = int(np.prod(shape, dtype=np.int64))
    if not 0 <= count <= MOST_VALUES:
        return None
    if tensor.tensor_content:
        width = 4 if dtype == "int32" else 8
        return [int(item) for item in np.frombuffer(tensor.tensor_content[: count * width], dtype=f"<i{width}")]
    items = list(tensor.int_val or tensor.int64_val or [0])
    return [*items, *[items[-1]] * (count - len(items))][:count]  # the last one repeats


def shape_of(message: Message) -> Shape:
    """A TensorShapeProto as a list."""
    return None if message.unknown_rank else [dim.size for dim in message.dim]
