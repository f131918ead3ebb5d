"""The training graph of a recorded step of PyTorch, with the op types of aten_ops.py.

The update is one op per weight, as in TensorFlow's graphs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch

from driple.contracts.graph_makers import TORCH
from driple.workloads.graphs import image_layout
from driple.workloads.graphs.graph_writer import Graph
from driple.workloads.graphs.step_builder import StepBuilder, StepKind, Tensor, Value
from driple.workloads.torch_graphs.aten_ops import NOTHING, PASS, op_type, stem
from driple.workloads.torch_graphs.aten_splits import SPLITTERS, batch_norm, groups_of, moving_averages
from driple.workloads.torch_graphs.torch_recorder import Call, Ref, Step

_REARRANGING = frozenset(
    (
        *("view", "_unsafe_view", "reshape", "_reshape_alias", "unflatten", "flatten", "permute", "transpose", "t"),
        *("as_strided", "unfold", "bmm"),
    )
)
"""Ops that give the dimensions of a tensor another meaning."""
_CONVOLUTIONS = {"convolution": (slice(1), 1), "convolution_backward": (slice(2), 2)}
"""Which arguments are images, and which one is the kernel."""
_OF_IMAGES = ("pool1d", "pool2d", "pool3d", "upsample_")


def graph_of(step: Step, order: Sequence[str], kind: StepKind, source: str, workload: str) -> Graph:
    """The graph of a recorded step.

    Args:
        step: the step.
        order: names of all weights in the order of their creation.
        kind: of the step.
        source: name of the model.
        workload: as JSON.
    """
    return Conversion(step, order, kind).graph(source, workload)


def creation_order(model: torch.nn.Module) -> list[str]:
    """Names of parameters and buffers: module by module, in each the parameters before the buffers."""
    names = {id(one): name for name, one in (*model.named_parameters(), *model.named_buffers())}
    own = (
        tensor
        for module in model.modules()
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False))
    )
    return list(dict.fromkeys(names[id(tensor)] for tensor in own))


class Conversion:
    """A recorded step on its way into a StepBuilder."""

    def __init__(self, step: Step, order: Sequence[str], kind: StepKind) -> None:
        self.step = step
        self._kernels = dict(_kernels(step))
        self._images = image_layout.images_among(step.tensors, _links(step), _images(step))
        averages = {*_averages(step), *step.changed}
        numbers = {name: number for number, name in step.weights.items()}
        variables = {
            name: self.shape(Ref(numbers[name]))
            for name in order
            if name in step.parameters or (name in averages and _is_statistic(step.tensors[numbers[name]]))
        }
        self.builder = StepBuilder(kind, variables.items())
        self._variables = frozenset(variables)
        self._values: dict[int, Value | None] = {}
        self._complete: dict[int, list[str]] = defaultdict(list)
        for name, gradient in step.gradients.items():
            self._complete[gradient.number].append(name)

    def graph(self, source: str, workload: str) -> Graph:
        for number, call in enumerate(self.step.calls):
            self._convert(call, f"{stem(call.name)}_{number}")
            for output in call.made:
                self._take_gradients(output)
        for gradient in self.step.gradients.values():  # what is left was given to the model
            self._take_gradients(gradient)
        for name, tensor in self.step.changed.items():
            self.average(name, self.value(tensor))
        loss = self.value(self.step.loss)
        if loss is not None:
            self.builder.want(loss[0])
        self.builder.update()
        return self.builder.graph(source, TORCH, str(torch.__version__), workload)

    def _convert(self, call: Call, name: str) -> None:
        op = op_type(call.name)
        if op in (PASS, NOTHING):
            passed = self.value(call.inputs[0]) if op == PASS and call.inputs else None
            self._values.update((output.number, passed) for output in call.made)
        elif stem(call.name) in SPLITTERS:
            SPLITTERS[stem(call.name)](self, call, name)
        else:
            self.add(op, call.inputs, call.made, name)

    def add(self, op: str, inputs: Sequence[Ref | Value | None], outputs: Sequence[Ref], name: str) -> int:
        """Adds an op whose outputs are tensors of the step."""
        values = [self.value(one) if isinstance(one, Ref) else one for one in inputs]
        number = self.builder.op(op, values, [self.shape(one) for one in outputs], name=name)
        self._values.update((one.number, (number, place)) for place, one in enumerate(outputs))
        return number

    def add_inner(self, op: str, inputs: Sequence[Ref | Value | None], output: Tensor, name: str) -> Value:
        """Adds an op whose output is no tensor of the step."""
        values = [self.value(one) if isinstance(one, Ref) else one for one in inputs]
        return self.builder.op(op, values, [output], name=name), 0

    def value(self, ref: Ref) -> Value | None:
        """The output that a tensor is; None for memory without values. A tensor that no op made gets an op."""
        number = ref.number
        if number not in self._values:
            name = self.step.weights.get(number)
            if name in self._variables and name is not None:
                self._values[number] = self.builder.variable(name)
            else:
                op = "Placeholder" if number in self.step.inputs else "Const"
                name = name or self.step.inputs.get(number)
                self._values[number] = self.builder.op(op, [], [self.shape(ref)], name=name), 0
        return self._values[number]

    def shape(self, ref: Ref) -> Tensor:
        """A tensor with its dimensions in the order of graph files."""
        tensor = self.step.tensors[ref.number]
        if ref.number in self._kernels:
            return image_layout.kernel(tensor, self._kernels[ref.number])
        return image_layout.image(tensor) if ref.number in self._images else tensor

    def weight(self, ref: Ref) -> Tensor:
        """A tensor as it is in the step."""
        return self.step.tensors[ref.number]

    def average(self, name: str, value: Value | None) -> None:
        """A buffer that the step changes."""
        if name in self._variables and value is not None:
            self.builder.average(name, value)

    def _take_gradients(self, ref: Ref) -> None:
        for name in self._complete.pop(ref.number, ()):
            value = self.value(ref)
            if value is not None:
                self.builder.gradient(name, value)


def _is_statistic(tensor: Tensor) -> bool:
    """Whether a buffer that a step changes is worth an op: counters of steps are not."""
    return tensor.dtype.startswith(("float", "bfloat")) and tensor.shape != ()


def _links(step: Step) -> Iterator[list[int]]:
    for call in step.calls:
        name = stem(call.name)
        if name not in _REARRANGING and name not in _CONVOLUTIONS:
            yield [one.number for one in (*call.inputs, *call.made)]


def _images(step: Step) -> Iterator[int]:
    for call in step.calls:
        name = stem(call.name)
        if name in _CONVOLUTIONS:
            found = [*call.arguments[_CONVOLUTIONS[name][0]], call.outputs[0]]
        else:
            found = [*call.inputs, *call.made] if any(part in name for part in _OF_IMAGES) else []
        yield from (one.number for one in found if isinstance(one, Ref))


def _kernels(step: Step) -> Iterator[tuple[int, int]]:
    """The kernels of convolutions, and their gradients, with the number of groups."""
    for call in step.calls:
        name = stem(call.name)
        if name in _CONVOLUTIONS:
            groups = groups_of(call)
            found = [call.arguments[_CONVOLUTIONS[name][1]], *call.outputs[1:2]]
            yield from ((one.number, groups) for one in found if isinstance(one, Ref))


def _averages(step: Step) -> Iterator[str]:
    for call in step.calls:
        if SPLITTERS.get(stem(call.name)) is batch_norm:
            yield from (step.weights[one.number] for one in moving_averages(call) if one.number in step.weights)
