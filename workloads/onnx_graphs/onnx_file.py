"""Reads an ONNX file: its ops, and the shapes of all tensors for a batch size. The values of weights are not kept."""

from __future__ import annotations

import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import onnx.inliner
from google.protobuf.message import DecodeError

from driple.contracts.errors import BadInput, shown
from driple.workloads.graphs.step_builder import Tensor
from driple.workloads.onnx_graphs.onnx_shapes import Shapes, shape_of

MOST_BYTES = 2**31
"""The limit of the format. Larger models have their weights in files beside it, which are not read."""
MOST_NODES = 200_000
DEFAULT_BATCH = 32


@dataclass(frozen=True)
class OnnxFile:
    """The forward graph of a file."""

    nodes: Sequence[Any]
    """NodeProto, each after those whose outputs it takes."""
    tensors: Mapping[str, Tensor]
    """By name, as far as they are known."""
    weights: frozenset[str]
    """Tensors whose values are in the file."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    batch_size: int


def read_onnx(path: Path, batch_size: int | None, size: int | None = None) -> OnnxFile:
    """Reads a file.

    Args:
        path: the file.
        batch_size: value of a first dimension that is not fixed; by default 32.
        size: value of the other dimensions that are not fixed; by default they stay unknown.

    Raises:
        BadInput: the file cannot be read, is no ONNX file, or has another batch size.
    """
    model = _parsed(path)
    try:
        model = _one_graph(model)
        _check_order(path, model.graph)
        batch = _set_dimensions(path, model, batch_size, size)
        types = Shapes(model).types
    except (ValueError, RuntimeError, TypeError) as error:  # raised by onnx for a damaged graph
        raise BadInput(f"{path}: not a valid ONNX graph: {_line(error)}") from None
    graph = model.graph
    weights = {one.name for one in graph.initializer}
    return OnnxFile(
        nodes=list(graph.node),
        tensors={name: Tensor(shape_of(kind), _dtype(kind.tensor_type.elem_type)) for name, kind in types.items()},
        weights=frozenset(weights),
        inputs=tuple(one.name for one in graph.input if one.name not in weights),
        outputs=tuple(one.name for one in graph.output),
        batch_size=batch,
    )


def _parsed(path: Path) -> Any:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise BadInput(f"{path}: not a regular file")
        if status.st_size >= MOST_BYTES:
            raise BadInput(f"{path}: {status.st_size} bytes, and an ONNX file has less than {MOST_BYTES}")
        model = onnx.ModelProto()
        model.ParseFromString(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: {error.strerror}") from None
    except DecodeError:
        raise BadInput(f"{path}: not an ONNX file, or cut short") from None
    if not (model.ir_version and model.graph.node and model.opset_import):
        raise BadInput(f"{path}: not an ONNX file, or one without ops")
    if len(model.graph.node) > MOST_NODES:
        raise BadInput(f"{path}: {len(model.graph.node)} ops; expected at most {MOST_NODES}")
    return model


def _check_order(path: Path, graph: Any) -> None:
    """Raises BadInput for an op without output, or one that takes a tensor that is not there."""
    made = {one.name for one in (*graph.input, *graph.initializer)}
    made |= {one.values.name for one in graph.sparse_initializer}
    for node in graph.node:
        missing = [name for name in named(node.input) if name not in made]
        if missing or not any(named(node.output)):
            fault = f"takes {shown(missing[0])}, which nothing before it makes" if missing else "has no output"
            raise BadInput(f"{path}: not a valid ONNX graph: op {shown(node.name or node.op_type)} {fault}")
        made.update(node.output)


def _one_graph(model: Any) -> Any:
    """The model with the ops of its own functions in their places."""
    return onnx.inliner.inline_local_functions(model) if model.functions else model


def _set_dimensions(path: Path, model: Any, batch_size: int | None, size: int | None) -> int:
    """Gives the dimensions that are not fixed their values; returns the batch size."""
    graph = model.graph
    weights = {one.name for one in graph.initializer}
    shapes = [one.type.tensor_type.shape for one in graph.input if one.name not in weights]
    first = next((shape.dim[0] for shape in shapes if len(shape.dim)), None)
    fixed = 0 if first is None else first.dim_value
    if fixed and batch_size not in (None, fixed):
        raise BadInput(
            f"{path}: its batch size is {fixed}, not {batch_size}: leave the batch size out, or export it with a"
            " dynamic first dimension"
        )
    batch = fixed or batch_size or DEFAULT_BATCH
    symbol = "" if first is None else first.dim_param
    for shape in shapes:
        for place, dimension in enumerate(shape.dim):
            if not dimension.dim_value and (place == 0 or (symbol and dimension.dim_param == symbol)):
                dimension.dim_value = batch
            elif not dimension.dim_value and size is not None:
                dimension.dim_value = size
    for one in (*graph.value_info, *graph.output):  # they may depend on the dimensions in any way
        for dimension in one.type.tensor_type.shape.dim:
            if dimension.dim_param and symbol == dimension.dim_param:
                dimension.dim_value = batch
            elif dimension.dim_param:
                dimension.Clear()
    return batch


def _dtype(number: int) -> str:
    try:
        return str(onnx.helper.tensor_dtype_to_np_dtype(number).name)
    except (KeyError, TypeError, ValueError):
        return "string"


def attribute(node: Any, name: str, default: Any = None) -> Any:
    """The value of an attribute of a node."""
    found = next((one for one in node.attribute if one.name == name), None)
    return default if found is None else onnx.helper.get_attribute_value(found)


def named(names: Sequence[str]) -> Iterator[str]:
    """Names without those that are left out, which are empty."""
    return (name for name in names if name)


def _line(error: Exception) -> str:
    return shown(" ".join(str(error).split())[:200])
