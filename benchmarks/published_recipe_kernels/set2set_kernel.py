"""Set2Set by the kernel: kernels/set2set.cpp has the arithmetic."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from driple.inspector.network.batching.graph_batch import Graphs
from published_recipe_kernels.buffer_pool import borrow, give_back
from published_recipe_kernels.kernel_call import PANEL, at, counts, filled, kernels_for, pointers, records, sizes
from published_recipe_kernels.pooled_function import Taped


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
        result: Tensor = Taped.apply(batch, *tensors)
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

    def backward(self, up: Tensor, tensors: Sequence[Tensor], tape: Tensor, wants_x: bool) -> list[Tensor | None]:
        up = up.contiguous()  # kept by a name until the call is over
        x, *weights = tensors
        dx = filled(x.shape, self.ragged)
        found = [torch.empty_like(w) for w in weights]
        self.kernels.driple_set2set_backward(
            *self.given, at(x), at(up), pointers(weights), at(tape), at(dx), pointers(found)
        )
        return [dx, *found]
