"""The training graph that follows from an ONNX file, which has the forward pass only.

Weights are the tensors of floating-point numbers in the file, except single numbers. Added by rule are a loss on every
output, the gradient of every op between a weight and the loss (onnx_ops.py), and an update of every weight. What the
exporter changed is not undone: a batch normalisation that is folded into a convolution stays folded.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import onnx

from driple.contracts.errors import BadInput
from driple.contracts.graph_makers import ONNX
from driple.workloads.graphs import image_layout
from driple.workloads.graphs.graph_writer import Graph
from driple.workloads.graphs.step_builder import StepBuilder, StepKind, Tensor, Value
from driple.workloads.onnx_graphs.onnx_file import OnnxFile, attribute, named, read_onnx
from driple.workloads.onnx_graphs.onnx_layers import BACKWARD, CONVOLUTIONS, FORWARD
from driple.workloads.onnx_graphs.onnx_ops import IMAGES, REARRANGING, SAME, rule_of

MOST_OF_A_SHAPE = 64
"""Elements of integer tensors that count as shapes, not as data."""
_AVERAGES = {"BatchNormalization": slice(3, 5)}
"""Inputs that are moving averages."""
_NONE = slice(0)
_JOINT = ("FusedBatchNormGradV3", "CudnnRNNBackpropV3")
"""Gradient ops that give the gradients of all inputs at once."""
_ELEMENTWISE = frozenset(["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mod", "Where", "PRelu", "Sum"])
"""Ops that repeat the smaller input: its gradient is a sum."""


def of_file(path: Path, kind: StepKind, batch_size: int | None, size: int | None = None) -> Graph:
    """The training graph of a file.

    Args:
        path: the file.
        kind: of the step.
        batch_size: where the file leaves it open; default 32.
        size: of other dimensions that the file leaves open.

    Raises:
        BadInput: the file cannot be read, or has nothing to train.
    """
    file = read_onnx(path, batch_size, size)
    try:
        found = Derivation(file, kind)
        graph = found.graph(path.name) if found.trained else None
    except IndexError:
        raise BadInput(f"{path}: not a valid ONNX graph: an op lacks inputs") from None
    if graph is None:
        raise BadInput(f"{path}: no output depends on weights that can be trained, floating-point tensors in the file")
    return replace(graph, workload=json.dumps({"batch_size": file.batch_size, "optimiser": kind.optimiser}))


class Derivation:
    """The forward ops of a file, to which the other ops of a training step are added."""

    def __init__(self, file: OnnxFile, kind: StepKind) -> None:
        self.file = file
        aliases = {
            one.output[0]: one for one in file.nodes if one.op_type == "Identity" and one.input[0] in file.weights
        }
        self._stored = {*file.weights, *aliases}  # exporters keep equal weights once, behind an Identity each
        constants = {name for one in file.nodes if one.op_type == "Constant" for name in one.output}
        self.nodes = [
            one
            for one in file.nodes
            if one.op_type != "Constant" and one.output[0] not in aliases and not self._is_shape(one)
        ]
        self._averages = {name for one in self.nodes for name in one.input[_AVERAGES.get(one.op_type, _NONE)]}
        weights = [name for one in self.nodes for name in one.input if name in self._stored and self._is_weight(name)]
        self.weights = list(dict.fromkeys(weights))
        self._layout()
        self._there = {name for one in self.nodes for name in one.output} | {*file.inputs, *constants, *self._stored}
        self.builder = StepBuilder(kind, [(name, self.shape(name)) for name in self.weights])
        self._values: dict[str, Value] = {}
        self._gradients: dict[str, list[Value]] = defaultdict(list)
        self.trained = self._that_need_gradients()

    def graph(self, source: str) -> Graph:
        for number, node in enumerate(self.nodes):
            self._forward(node, f"{node.name or node.op_type}_{number}")
        for name in self.file.outputs:
            if name in self.trained:
                self._loss(name)
        first = {name: number for number, node in reversed([*enumerate(self.nodes)]) for name in named(node.input)}
        for number, node in reversed([*enumerate(self.nodes)]):
            gradients = [one for name in named(node.output) for one in self._total(name)]
            if gradients:
                self._backward(node, gradients, f"gradients/{node.name or node.op_type}_{number}")
            for name in dict.fromkeys(named(node.input)):
                if first[name] == number and name in self.weights and name not in self._averages:
                    for gradient in self._total(name):
                        self.builder.gradient(name, gradient)
        self.builder.update()
        return self.builder.graph(source, ONNX, str(onnx.__version__), "{}")

    # Tensors.

    def tensor(self, name: str) -> Tensor:
        """Shape and dtype as in the file."""
        return self.file.tensors.get(name, Tensor(None))

    def shape(self, name: str) -> Tensor:
        """The same with its dimensions in the order of graph files."""
        tensor = self.tensor(name)
        if name in self._kernels:
            return image_layout.kernel(tensor, self._kernels[name])
        return image_layout.image(tensor) if name in self._images else tensor

    def value(self, name: str) -> Value | None:
        """The output that a tensor is; None if it is a shape, or not part of the graph."""
        if not name or name not in self._there or self._is_small_integer(name):
            return None
        if name in self._values:
            return self._values[name]
        if name in self.weights:
            return self.builder.variable(name)
        op = "Placeholder" if name in self.file.inputs else "Const"
        self._values[name] = self.builder.op(op, [], [self.shape(name)], name=name), 0
        return self._values[name]

    def add(self, op: str, inputs: Iterable[Value | None], outputs: Sequence[str], name: str, **more: Any) -> int:
        """Adds an op whose outputs are tensors of the file."""
        given = [one for one in outputs if one]
        number = self.builder.op(op, list(inputs), [self.shape(one) for one in given], name=name, **more)
        self._values.update((one, (number, place)) for place, one in enumerate(given))
        return number

    def add_inner(self, op: str, inputs: Iterable[Value | None], like: str, name: str, **more: Any) -> Value:
        """Adds an op whose output has the shape of a tensor of the file."""
        return self.builder.op(op, list(inputs), [self.shape(like)], name=name, **more), 0

    def made(self, name: str, value: Value) -> None:
        """Says which output a tensor of the file is."""
        self._values[name] = value

    def give(self, name: str, gradient: Value) -> None:
        """Adds a part of the gradient of a tensor."""
        self._gradients[name].append(gradient)

    def elements(self, name: str) -> float:
        """NaN if it is not known."""
        shape = self.tensor(name).shape
        return math.nan if shape is None or -1 in shape else float(math.prod(shape))

    def _total(self, name: str) -> list[Value]:
        """The gradient of a tensor, or nothing."""
        parts = self._gradients.pop(name, [])
        return [self.add_inner("AddN", parts, name, f"gradients/{name}/sum")] if len(parts) > 1 else parts

    def _is_float(self, name: str) -> bool:
        return self.tensor(name).dtype.startswith(("float", "bfloat"))

    def _is_weight(self, name: str) -> bool:
        return self._is_float(name) and self.elements(name) > 1

    def _is_small_integer(self, name: str) -> bool:
        return name in self.file.tensors and not self._is_float(name) and self.elements(name) <= MOST_OF_A_SHAPE

    def _is_shape(self, node: Any) -> bool:
        """Whether an op computes shapes: small integers from other tensors' shapes."""
        return all(self._is_small_integer(name) for name in named(node.output))

    def _that_need_gradients(self) -> set[str]:
        found = {name for name in self.weights if name not in self._averages}
        for node in self.nodes:
            if any(name in found for name in node.input):
                found.update(
                    name for name in named(node.output) if self._is_float(name) or name not in self.file.tensors
                )
        return found if any(name in found for name in self.file.outputs) else set()

    def _layout(self) -> None:
        names = list(dict.fromkeys(name for node in self.nodes for name in named((*node.input, *node.output))))
        number = {name: place for place, name in enumerate(names)}
        convolutions = [node for node in self.nodes if node.op_type in CONVOLUTIONS]
        self._kernels = {node.input[1]: int(attribute(node, "group", 1)) for node in convolutions}
        known = [
            number[name] for node in self.nodes if node.op_type in IMAGES for name in (node.input[0], node.output[0])
        ]
        links = (
            [number[name] for name in named((*node.input, *node.output))]
            for node in self.nodes
            if node.op_type not in REARRANGING and node.op_type not in CONVOLUTIONS
        )
        found = image_layout.images_among([self.tensor(name) for name in names], links, known)
        self._images = {names[place] for place in found} - {*self.weights}

    # Ops.

    def _forward(self, node: Any, name: str) -> None:
        if node.op_type in FORWARD:
            FORWARD[node.op_type](self, node, name)
        else:
            self.add(rule_of(node.op_type).forward, map(self.value, node.input), node.output, name)

    def _loss(self, name: str) -> None:
        """A loss on an output: the output itself if it is a number, else the cross entropy over its last dimension."""
        shape = self.tensor(name).shape
        logits = self.value(name)
        if shape is None or math.prod(shape) == 1 or logits is None:
            if logits is not None:
                self.builder.want(logits[0])
            self.give(name, self.add_inner("Fill", [], name, f"loss/{name}/one"))
            return
        labels = self.builder.op("Placeholder", [], [Tensor(shape[:-1], "int64")], name=f"loss/{name}/labels"), 0
        each = self.builder.op(
            "SparseSoftmaxCrossEntropyWithLogits",
            [logits, labels],
            [Tensor(shape[:-1]), self.shape(name)],
            name=f"loss/{name}",
        )
        mean = self.builder.op("Mean", [(each, 0)], [Tensor(())], name=f"loss/{name}/mean")
        self.builder.want(mean)
        self.give(name, self.add_inner("Mul", [(each, 1)], name, f"gradients/loss/{name}"))

    def _backward(self, node: Any, gradients: Sequence[Value], name: str) -> None:
        if node.op_type in BACKWARD:
            BACKWARD[node.op_type](self, node, gradients, name)
            return
        op, output = rule_of(node.op_type).gradient, node.output[0]
        wanted = [each for each in dict.fromkeys(named(node.input)) if each in self.trained]
        if op in _JOINT:
            self.joint(op, [*gradients, *map(self.value, node.input)], wanted, name)
            return
        for place, each in enumerate(wanted):
            repeated = node.op_type in _ELEMENTWISE and self.elements(each) < self.elements(output)
            gradient = gradients[0]
            if op != SAME:
                like = output if repeated else each
                gradient = self.add_inner(op, [*gradients, self.value(each)], like, f"{name}/{place}")
            if repeated:
                gradient = self.add_inner("Sum", [gradient], each, f"{name}/{place}/sum")
            self.give(each, gradient)

    def joint(self, op: str, inputs: Iterable[Value | None], wanted: Sequence[str], name: str, **more: Any) -> None:
        """Adds one op that gives the gradients of several tensors."""
        number = self.builder.op(op, list(inputs), [self.shape(each) for each in wanted], name=name, **more)
        for place, each in enumerate(wanted):
            self.give(each, (number, place))
