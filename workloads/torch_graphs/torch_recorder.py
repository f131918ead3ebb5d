"""Records the ATen ops of a training step of PyTorch, forward and backward, without computing anything.

The tensors have shapes and no values (the device `meta`, or fake tensors). A recorder sees each op that PyTorch
dispatches, so the model is ordinary code: branches, loops and libraries need no tracing.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from driple.workloads.graphs.step_builder import Tensor


@dataclass(frozen=True)
class Ref:
    """A tensor among the arguments of an op. An in-place op gives its tensor a new number."""

    number: int


@dataclass(frozen=True)
class Call:
    """One op."""

    name: str
    """Without namespace and overload."""
    arguments: tuple[Any, ...]
    """With a Ref for each tensor. Keyword arguments come last."""
    outputs: tuple[Ref | None, ...]
    """None where the op was not asked for an output."""

    @property
    def inputs(self) -> list[Ref]:
        """In the order of the arguments."""
        return [one for one in tree_leaves(self.arguments) if isinstance(one, Ref)]

    @property
    def made(self) -> list[Ref]:
        """The outputs that there are."""
        return [one for one in self.outputs if one is not None]


@dataclass(frozen=True)
class Step:
    """A recorded step."""

    calls: tuple[Call, ...]
    tensors: Sequence[Tensor]
    """By the number of a Ref."""
    weights: Mapping[int, str]
    """Name of each parameter and buffer, by its number before the step."""
    inputs: Mapping[int, str]
    parameters: frozenset[str]
    """Names of all of them, also of those that are not trained."""
    gradients: Mapping[str, Ref]
    """By parameter; without those that the loss does not depend on."""
    loss: Ref
    changed: Mapping[str, Ref] = field(default_factory=dict)
    """Buffers that an in-place op changed, with their tensors after the step."""


def record(model: torch.nn.Module, inputs: Mapping[str, torch.Tensor], loss_of: Callable[[], torch.Tensor]) -> Step:
    """Records `loss_of()` and the gradients of the trainable weights of a model.

    Args:
        model: has all weights; without memory for them, or the step is computed, too.
        inputs: tensors of a batch by name.
        loss_of: computes the loss, a scalar, from model and inputs.
    """
    recorder = _Recorder()
    weights = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    numbers = {recorder.number(tensor): name for name, tensor in weights.items()}
    batch = {recorder.number(tensor): name for name, tensor in inputs.items()}
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    with _device_independent(), recorder:
        loss = loss_of()
        found = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
    gradients = {name: one for name, one in zip(trained, found, strict=True) if one is not None}
    return Step(
        calls=tuple(recorder.calls),
        tensors=recorder.tensors,
        weights=numbers,
        inputs=batch,
        parameters=frozenset(name for name, _ in model.named_parameters()),
        gradients={name: Ref(recorder.number(one)) for name, one in gradients.items()},
        loss=Ref(recorder.number(loss)),
        changed={
            name: Ref(recorder.number(one)) for name, one in weights.items() if recorder.number(one) not in numbers
        },
    )


@contextlib.contextmanager
def _device_independent() -> Iterator[None]:
    """Writes attention as products and softmax, and recurrent layers step by step, as TensorFlow's graphs have them.

    Otherwise their ops would depend on the processor, and the fused ones have no formula for FLOPs.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # it warns of Intel's GPUs when it restores the flags
        with sdpa_kernel(SDPBackend.MATH), torch.backends.mkldnn.flags(enabled=False):
            yield


class _Recorder(TorchDispatchMode):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self.tensors: list[Tensor] = []
        self._numbers: dict[int, int] = {}
        self._kept: list[torch.Tensor] = []

    def number(self, tensor: torch.Tensor) -> int:
        """The number of a tensor; a new one if it was not seen before."""
        return self._numbers[id(tensor)] if id(tensor) in self._numbers else self._new(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":  # questions about a tensor
            return func(*args, **kwargs)
        arguments = tree_map(self._ref, (*args, *kwargs.values()))
        result = func(*args, **kwargs)
        outputs = tuple(Ref(self._new(one)) if isinstance(one, torch.Tensor) else None for one in tree_leaves(result))
        self.calls.append(Call(func._schema.name.partition("::")[2], arguments, outputs))
        return result

    def _ref(self, value: Any) -> Any:
        return Ref(self.number(value)) if isinstance(value, torch.Tensor) else value

    def _new(self, tensor: torch.Tensor) -> int:
        number = len(self.tensors)
        self._numbers[id(tensor)] = number
        self._kept.append(tensor)  # another tensor must not get its id
        self.tensors.append(Tensor(tuple(map(int, tensor.shape)), str(tensor.dtype).removeprefix("torch.")))
        return number
