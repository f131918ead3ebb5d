"""Reads a GraphDef (.pb, .pbtxt) without TensorFlow.

Control inputs (`^name`) are dropped; `name:1` is an edge from `name`. An op without a device gets that of its
colocation group (`loc:@name`), else that of its first input.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from driple.contracts.errors import BadInput, shown
from driple.contracts.op_flops import flops
from driple.pipeline.graph import graphdef_proto
from driple.pipeline.graph.function_inlining import Node, inline_functions
from driple.pipeline.graph.output_sizes import Shape, guessed, output_bytes
from driple.pipeline.graph.output_types import output_dtypes
from driple.pipeline.graph.raw_graph import RawGraph
from driple.pipeline.graph.shape_inference import output_shapes
from driple.pipeline.graph.training_step import OpDetails, op_details


def read(content: bytes, *, text: bool, batch_size: int | None) -> RawGraph:
    """Reads a GraphDef. Raises BadInput if it is none, is cut short, has no nodes, or lacks the input of a node."""
    graph = graphdef_proto.parse(content, text=text)
    if not graph.node:
        raise BadInput("not a GraphDef, or one without nodes")
    return _raw(inline_functions(graph), batch_size)


def _raw(nodes: list[Node], batch_size: int | None) -> RawGraph:
    index = {node.name: position for position, node in enumerate(nodes)}
    if len(index) < len(nodes):
        twice = next(node.name for position, node in enumerate(nodes) if index[node.name] != position)
        raise BadInput(f"two nodes of the name {shown(twice)}")
    edges, outputs = [], []
    for position, node in enumerate(nodes):
        for name, output in node.inputs:
            if name not in index:
                raise BadInput(f"op {shown(node.name)} has the input {shown(name)}, which is not in the graph")
            edges.append((index[name], position))
            outputs.append(output)
    sizes = np.zeros(len(nodes))
    sized: NDArray[np.bool_] = np.ones(len(nodes), dtype=bool)
    shapes = output_shapes(nodes, index)
    for position, node in enumerate(nodes):
        own = shapes[position]
        if own is None:
            sized[position] = False
            continue
        sizes[position], sized[position] = output_bytes(
            own, output_dtypes(node.op, node.attributes, len(own)), batch_size
        )

    def tensor_bytes(op: int, output: int) -> float:
        own = shapes[op]
        if own is None:
            return 0.0
        dtypes = output_dtypes(nodes[op].op, nodes[op].attributes, len(own))
        return output_bytes(own[output : output + 1], dtypes[output : output + 1], batch_size)[0]

    names, ops = [node.name for node in nodes], [node.op for node in nodes]
    ends, ports = np.asarray(edges, dtype=np.int64).reshape(-1, 2), np.asarray(outputs, dtype=np.int64)

    def details() -> OpDetails:
        types = [
            output_dtypes(node.op, node.attributes, len(own or ())) for node, own in zip(nodes, shapes, strict=True)
        ]
        return op_details(names, ops, shapes, types, ends, ports, batch_size)

    return RawGraph(
        names=names,
        ops=ops,
        devices=_devices(nodes, index),
        bytes=sizes,
        sized=sized,
        flops=_flops(nodes, index, shapes, batch_size),
        edges=ends,
        edge_outputs=ports,
        tensor_bytes=tensor_bytes,
        details=details,
    )


def _flops(
    nodes: list[Node], index: dict[str, int], shapes: Sequence[Sequence[Shape] | None], batch_size: int | None
) -> NDArray[np.float64]:
    def shape(position: int, output: int) -> list[int] | None:
        own = shapes[position] or ()
        found = own[output] if output < len(own) else None
        return None if found is None else guessed(found, batch_size)

    return np.array(
        [
            flops(
                node.op,
                [shape(index[name], output) for name, output in node.inputs],
                [shape(position, output) for output in range(len(shapes[position] or ()))],
            )
            for position, node in enumerate(nodes)
        ]
    )


def _devices(nodes: list[Node], index: dict[str, int]) -> list[str]:
    devices = [node.device for node in nodes]
    for _ in range(2):  # an op of the group may get its own device in the first round
        for position, node in enumerate(nodes):
            if devices[position]:
                continue
            names = [*_colocated(node), *[name for name, _ in node.inputs[:1]]]
            found = (devices[index[name]] for name in names if name in index)
            devices[position] = next(filter(None, found), "")
    return devices


def _colocated(node: Node) -> list[str]:
    value = node.attributes.get("_class")
    groups = [] if value is None else value.list.s
    return [group.decode("utf-8", "replace").removeprefix("loc:@") for group in groups]
