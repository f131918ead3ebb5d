"""Set2Set by the kernel: kernels/set2set.cpp has the arithmetic."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from driple.inspector.executions.graphs import Graphs
from driple.inspector.fast.native import PANEL, at, counts, filled, kernels_for, pointers, records, sizes
from driple.inspector.fast.tape import borrow, give_back


def set2set_by_kernel(graphs: Graphs, x: Tensor, lstm: nn.LSTMCell, steps: Sequence[int]) -> Tensor | None:
    """q* of each graph after its own number of steps [B, 2 inputs], or None where the kernel does not serve."""
    hidden = x.shape[-1]
    if hidden % PANEL or lstm.hidden_size != hidden:
        return None
    weights = (lstm.weight_ih, lstm.weight_hh, lstm.bias_ih, lstm.bias_hh)
    kernels = kernels_for(graphs, x, weights)
    if kernels is None:
        return None
    batch = _Batch(kernels, x.shape, graphs.counts, steps)
    tensors = (x.contiguous(), *(w.contiguous() for w in weights))
    if records(x, *weights):
        result: Tensor = _Set2Set.apply(batch, *tensors)
        return result
    tape = batch.tape()
    found = batch.forward(tensors, tape)
    give_back(tape)
    return found


class _Batch:
    """The kernel's calls for one batch."""

    def __init__(self, kernels: ctypes.CDLL, shape: Sequence[int], nodes: Sequence[int], steps: Sequence[int]) -> None:
        self.kernels = kernels
        self.shape = (shape[0], 2 * shape[2])
        self.ragged = min(nodes) < shape[1]
        self.given = (sizes(*shape), counts(nodes), counts(steps))

    def tape(self) -> Tensor:
        self.kernels.driple_set2set_tape.restype = ctypes.c_long
        return borrow(self.kernels.driple_set2set_tape(*self.given))

    def forward(self, tensors: Sequence[Tensor], tape: Tensor) -> Tensor:
        x, *weights = (t.detach() for t in tensors)
        out = torch.empty(self.shape, dtype=torch.float32)
        self.kernels.driple_set2set_forward(*self.given, at(x), pointers(weights), at(out), at(tape))
        return out

    def backward(self, up: Tensor, tensors: Sequence[Tensor], tape: Tensor) -> list[Tensor]:
        up = up.contiguous()  # kept by a name until the call is over
        x, *weights = tensors
        dx = filled(x.shape, self.ragged)
        found = [torch.empty_like(w) for w in weights]
        self.kernels.driple_set2set_backward(
            *self.given, at(x), at(up), pointers(weights), at(tape), at(dx), pointers(found)
        )
        return [dx, *found]


class _Set2Set(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, batch: _Batch, *tensors: Tensor) -> Tensor:
        ctx.batch, ctx.tape = batch, batch.tape()
        ctx.save_for_backward(*tensors)
        return batch.forward(tensors, ctx.tape)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
        tape, ctx.tape = ctx.tape, None
        if tape is None:
            raise RuntimeError("a second backward pass through the same readout: compute it again first")
        found = ctx.batch.backward(up, ctx.saved_tensors, tape)
        give_back(tape)
        return (None, *found)
