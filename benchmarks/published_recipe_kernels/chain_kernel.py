"""The published chain, GCN layer and GRU cell in turn, by the kernel: kernels/chain.cpp has the arithmetic."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from driple.inspector.network.batching.graph_batch import Graphs
from driple.inspector.network.layers.gcn import GcnLayer
from driple.inspector.network.layers.gru import StateCell
from published_recipe_kernels.buffer_pool import borrow
from published_recipe_kernels.kernel_call import PANEL, at, counts, filled, kernels_for, pointers, records, sizes
from published_recipe_kernels.pooled_function import Taped


def chain_by_kernel(
    graphs: Graphs, x: Tensor, first: object, other: object, cell: object, steps: Sequence[int]
) -> Tensor | None:
    """States after the last step of each graph [B, N, hidden], or None where the kernel does not serve.

    Rows that fill up a smaller graph are zero.

    Args:
        graphs: the batch.
        x: states before, [B, N, hidden] or narrower.
        first: the layer of the first step.
        other: the layer of all other steps.
        cell: after each layer.
        steps: how many each graph takes.
    """
    if not (isinstance(first, GcnLayer) and isinstance(other, GcnLayer) and isinstance(cell, StateCell)):
        return None
    inputs, hidden = first.weight.shape
    fits = hidden % PANEL == 0 and inputs <= hidden and other.weight.shape == (hidden, hidden)
    if not fits or x.shape[-1] != inputs or cell.manner != "message":
        return None
    gru = cell.cell
    layers = (first.weight, first.bias, other.weight, other.bias)
    weights = (*layers, gru.weight_ih, gru.weight_hh, gru.bias_ih, gru.bias_hh)
    kernels = kernels_for(graphs, x, weights)
    if kernels is None:
        return None
    batch = _Batch(kernels, x.shape, hidden, graphs.counts, steps)
    tensors = (x.contiguous(), graphs.normalised.contiguous(), *(w.contiguous() for w in weights))  # type: ignore[attr-defined]
    if records(x, *weights):
        result: Tensor = Taped.apply(batch, *tensors)
        return result
    return batch.forward(tensors, None)


class _Batch:
    """The kernel's calls for one batch."""

    def __init__(
        self, kernels: ctypes.CDLL, shape: Sequence[int], hidden: int, nodes: Sequence[int], steps: Sequence[int]
    ) -> None:
        self.kernels = kernels
        self.shape = (*shape[:2], hidden)
        self.ragged = min(nodes) < shape[1]
        self.given = (sizes(*shape, hidden), counts(nodes), counts(steps))

    def tape(self) -> Tensor:
        self.kernels.driple_chain_tape.restype = ctypes.c_long
        return borrow(self.kernels.driple_chain_tape(*self.given))

    def forward(self, tensors: Sequence[Tensor], tape: Tensor | None) -> Tensor:
        x, norm, *weights = (t.detach() for t in tensors)
        out = filled(self.shape, self.ragged)
        self.kernels.driple_chain_forward(*self.given, at(x), at(norm), pointers(weights), at(out), at(tape))
        return out

    def backward(self, up: Tensor, tensors: Sequence[Tensor], tape: Tensor, wants_x: bool) -> list[Tensor | None]:
        up = up.contiguous()  # kept by a name until the call is over
        x, norm, *weights = tensors
        dx = filled(x.shape, self.ragged) if wants_x else None
        found = [torch.empty_like(w) for w in weights]
        self.kernels.driple_chain_backward(
            *self.given, at(up), at(norm), pointers(weights), at(tape), at(dx), pointers(found)
        )
        return [dx, None, *found]
