"""The training graph of a user's torch model: `file.py:function`.

    def build(*, batch_size, classes):
        return MyNet(classes), torch.zeros(batch_size, 3, 224, 224)

The function returns a module and its example inputs: a tensor, a tuple of them, or a dictionary by parameter name. It
takes by keyword whichever of these it names: batch_size, and as far as the caller gives them image_size,
sequence_length, classes, width. Without batch_size, the first dimension of every input becomes the batch size.

The module returns its loss, a scalar, or logits, whose loss is the cross entropy over the last dimension. It runs
without values and without memory, so it must not branch on values of tensors.
"""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map

from driple.contracts.errors import BadInput
from driple.contracts.graph_makers import TORCH
from driple.workloads.graphs.graph_writer import Graph
from driple.workloads.graphs.step_builder import StepKind
from driple.workloads.models.user_code import cause, user_function
from driple.workloads.torch_graphs.torch_graph import creation_order, graph_of
from driple.workloads.torch_graphs.torch_recorder import record

BATCH_SIZE = "batch_size"


@dataclass(frozen=True)
class OwnModel:
    """A module and its inputs, as the function returned them."""

    module: torch.nn.Module
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]

    @property
    def inputs(self) -> dict[str, torch.Tensor]:
        """The tensors among the inputs, with names for the graph."""
        found = [one for one in tree_leaves((self.arguments, dict(self.keywords))) if isinstance(one, torch.Tensor)]
        return {f"input_{number}": tensor for number, tensor in enumerate(found)}


def of_function(path: Path, function: str, kind: StepKind, sizes: Mapping[str, int | float]) -> Graph:
    """The graph of the model that a function builds.

    Args:
        path: the user's file.
        function: its name there.
        kind: of the step.
        sizes: what the function may name; has batch_size.

    Raises:
        BadInput: the function cannot be called, returns something else, or the model cannot be recorded.
    """
    where = f"{path}:{function}"
    call: Any = user_function(path, function)
    named = _named(where, call, sizes)
    with FakeTensorMode(allow_non_fake_inputs=True), _blamed(where, call.__code__.co_filename):
        model = _returned(where, call(**named))
        if BATCH_SIZE not in named:
            model = _with_batch(where, model, int(sizes[BATCH_SIZE]))
        module = model.module.train()
        if not any(one.requires_grad for one in module.parameters()):
            raise BadInput(f"{where}: the module has no parameters to train")
        step = record(module, model.inputs, lambda: _loss(where, module(*model.arguments, **model.keywords)))
    facts = {"model": where, **sizes, "optimiser": kind.optimiser, "strategy": kind.strategy, "framework": TORCH}
    order = creation_order(module)
    return graph_of(step, order, kind, path.name, json.dumps({**facts, "sharding": kind.sharding}, sort_keys=True))


def _named(where: str, function: Callable[..., Any], sizes: Mapping[str, int | float]) -> dict[str, int | float]:
    parameters = inspect.signature(function).parameters.values()
    for one in parameters:
        optional = one.default is not one.empty or one.kind in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
        if not optional and (one.name not in sizes or one.kind is one.POSITIONAL_ONLY):
            raise BadInput(
                f"{where}: nothing to give for parameter {one.name!r} (on offer: {', '.join(sizes)}; --dataset and"
                " --size give more)"
            )
    takes_all = any(one.kind is one.VAR_KEYWORD for one in parameters)
    return {name: value for name, value in sizes.items() if takes_all or name in {one.name for one in parameters}}


def _returned(where: str, result: Any) -> OwnModel:
    if not (isinstance(result, tuple | list) and len(result) == 2 and isinstance(result[0], torch.nn.Module)):
        raise BadInput(f"{where}: returned {type(result).__name__}, expected a torch.nn.Module and its example inputs")
    module, inputs = result
    if isinstance(inputs, Mapping):
        model = OwnModel(module, (), inputs)
    else:
        model = OwnModel(module, tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,), {})
    if not model.inputs:
        raise BadInput(f"{where}: its example inputs have no tensor")
    return model


def _with_batch(where: str, model: OwnModel, batch_size: int) -> OwnModel:
    first = {tensor.shape[0] if tensor.dim() else None for tensor in model.inputs.values()}
    if len(first) > 1 or None in first:
        raise BadInput(
            f"{where}: the first dimensions of its example inputs differ, so it is not known which are the batch; give"
            f" it a parameter {BATCH_SIZE}"
        )

    def resized(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return torch.empty((batch_size, *value.shape[1:]), dtype=value.dtype, device=value.device)

    return OwnModel(model.module, tuple(tree_map(resized, model.arguments)), tree_map(resized, dict(model.keywords)))


def _loss(where: str, output: Any) -> torch.Tensor:
    """The scalar that is trained: the model's own, or the cross entropy of its logits."""
    own = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    tensors = [one for one in tree_leaves(output) if isinstance(one, torch.Tensor) and one.is_floating_point()]
    found = own if isinstance(own, torch.Tensor) else tensors[0] if tensors else None
    if found is None or not found.requires_grad:
        what = type(output).__name__ if found is None else "a tensor that no parameter has a part in"
        raise BadInput(f"{where}: the module returned {what}, expected logits or a scalar loss")
    if found.numel() == 1:
        return found.sum()
    if found.dim() == 1:
        return found.square().mean()
    logits = found.flatten(0, -2)
    labels = torch.empty(logits.shape[0], dtype=torch.int64, device=logits.device)
    return torch.nn.functional.cross_entropy(logits, labels)


@contextlib.contextmanager
def _blamed(where: str, file: str) -> Iterator[None]:
    """Turns exceptions of the user's code into a BadInput."""
    try:
        yield
    except BadInput:
        raise
    except (Exception, SystemExit) as error:
        hint = ""
        if type(error).__name__ in ("DataDependentOutputException", "DynamicOutputShapeException"):
            hint = " (the model runs without values here, so it must not depend on values of tensors)"
        raise BadInput(f"{where}: {cause(error, file)}{hint}") from error
