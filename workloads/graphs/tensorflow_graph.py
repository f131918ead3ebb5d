"""The training graph that TensorFlow built, or a user's GraphDef, as nodes and edges."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput
from driple.contracts.formats import graph as graph_format
from driple.contracts.json_values import to_plain
from driple.contracts.run_spec import JobSpec
from driple.workloads.graphs.graph_build import WorkerGraph
from driple.workloads.graphs.graph_writer import Edge, Graph, Node


def of_worker(replica: WorkerGraph, job: JobSpec, task: str) -> Graph:
    """The training graph of a worker: all ancestors of its step and, in sync mode, of the update."""
    import tensorflow.compat.v1 as v1

    definition = v1.graph_util.extract_sub_graph(replica.graph.as_graph_def(), replica.targets)
    nodes, edges = _nodes_and_edges(definition, replica.graph)
    workload = job.run.workload
    return Graph(
        source=workload.model,
        setting=str(job.run.setting),
        task=task,
        workload=json.dumps(to_plain(workload), sort_keys=True),
        tensorflow=v1.__version__,
        nodes=nodes,
        edges=edges,
    )


def of_graphdef(path: Path) -> Graph:
    """The whole graph of a user's file. Raises BadInput if it is no GraphDef, or TensorFlow cannot import it."""
    import tensorflow.compat.v1 as v1
    from google.protobuf import message, text_format

    definition = v1.GraphDef()
    try:
        content = path.read_bytes()
        if path.suffix in (".pbtxt", ".txt"):
            text_format.Parse(content.decode("utf-8"), definition)
        else:
            definition.ParseFromString(content)
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except (message.DecodeError, text_format.ParseError, UnicodeDecodeError) as error:
        raise BadInput(f"{path}: not a GraphDef: {_one_line(error)}") from None
    if not definition.node:
        raise BadInput(f"{path}: a GraphDef without nodes")
    graph = v1.Graph()
    try:
        with graph.as_default():
            v1.import_graph_def(definition, name="")
    except (ValueError, v1.errors.OpError) as error:
        raise BadInput(f"{path}: TensorFlow cannot import this graph: {_one_line(error)}") from None
    nodes, edges = _nodes_and_edges(definition, graph)
    return Graph(path.name, None, None, None, v1.__version__, nodes, edges)


def _nodes_and_edges(definition: Any, graph: Any) -> tuple[list[Node], list[Edge]]:
    index = {node.name: position for position, node in enumerate(definition.node)}
    devices = _devices(definition, index)
    nodes = []
    edges = []
    for position, item in enumerate(definition.node):
        op = graph.get_operation_by_name(item.name)
        shapes = [_shape(output.shape) for output in op.outputs]
        nodes.append(
            Node(
                name=item.name,
                op=item.op,
                device=devices[position],
                shapes=shapes,
                dtypes=[output.dtype.base_dtype.name for output in op.outputs],
                output_bytes=_bytes(shapes, [_size(output.dtype) for output in op.outputs]),
                flops=_flops(graph, op, item),
            )
        )
        edges += [_edge(text, position, index) for text in item.input]
    return nodes, edges


def _edge(text: str, dst: int, index: dict[str, int]) -> Edge:
    if text.startswith("^"):
        return Edge(index[text[1:]], dst, graph_format.CONTROL, None)
    name, _, output = text.partition(":")
    return Edge(index[name], dst, graph_format.DATA, int(output or 0))


def _devices(definition: Any, index: dict[str, int]) -> list[str]:
    """The device of each node; by default that of its colocation group, else of its first input."""
    devices = [node.device for node in definition.node]
    for _ in range(2):  # an op of the group may get its own device in the first round
        for position, node in enumerate(definition.node):
            if devices[position]:
                continue
            groups = [group.decode() for group in node.attr["_class"].list.s] if "_class" in node.attr else []
            names = [group.removeprefix("loc:@") for group in groups]
            names += [text.partition(":")[0] for text in node.input if not text.startswith("^")][:1]
            devices[position] = next((devices[index[name]] for name in names if devices[index.get(name, position)]), "")
    return devices


def _shape(shape: Any) -> list[int] | None:
    return None if shape.rank is None else [-1 if size is None else size for size in shape.as_list()]


def _size(dtype: Any) -> int | None:
    """Bytes of one element; None for strings and handles, which have no fixed size."""
    name = dtype.base_dtype.name
    return None if name in ("string", "resource", "variant") else int(dtype.size)


def _bytes(shapes: Sequence[list[int] | None], sizes: Sequence[int | None]) -> int | None:
    total = 0
    for shape, size in zip(shapes, sizes, strict=True):
        if shape is None or -1 in shape or size is None:
            return None
        total += math.prod(shape) * size
    return total


def _flops(graph: Any, op: Any, definition: Any) -> int | None:
    import tensorflow.python.profiler.internal.flops_registry  # noqa: F401  (registers the formulas)
    from tensorflow.python.framework import ops

    if op.type.startswith("DepthwiseConv2dNativeBackprop"):
        # TensorFlow has a formula for the forward op only. Each gradient does the same multiply-adds.
        kernel = op.inputs[1].shape if op.type.endswith("Input") else op.outputs[0].shape
        out = op.inputs[2].shape
        known = kernel.is_fully_defined() and out.is_fully_defined()
        return 2 * kernel[0] * kernel[1] * int(out.num_elements()) if known else None
    try:
        value = ops.get_stats_for_node_def(graph, definition, "flops").value
    except (ValueError, TypeError, AssertionError):  # the formulas need known shapes
        return None
    return None if value is None else int(value)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
