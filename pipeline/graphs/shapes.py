"""The shapes of each op's outputs: those that the file says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from driple.pipeline.graphs.functions import Node
from driple.pipeline.graphs.schema import Message

Shape = list[int] | None
"""-1 for an unknown dimension, None for an unknown rank."""


def output_shapes(nodes: Sequence[Node], index: Mapping[str, int]) -> list[list[Shape] | None]:
    """Per node the shape of each output; None where not even their number is known."""
    return [_stated(node) for node in nodes]


def _stated(node: Node) -> list[Shape] | None:
    value = node.attributes.get("_output_shapes")
    if value is not None:
        return [shape_of(shape) for part in value.get("list", []) for shape in part.get("shape", [])]
    for key in ("value", "shape"):
        found = node.attributes.get(key, {})
        for tensor in found.get("tensor", []):
            return [shape_of((tensor.get("tensor_shape") or [{}])[-1])]
        for shape in found.get("shape", []):
            return [shape_of(shape)]
    return None


def shape_of(message: Message) -> Shape:
    """A TensorShapeProto as a list."""
    if (message.get("unknown_rank") or [0])[-1]:
        return None
    return [(dim.get("size") or [0])[-1] for dim in message.get("dim", [])]
