"""What the two kernels have in common: when they serve a batch, and how tensors are handed to them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor

from driple.inspector.network.batching.dense import DenseGraphs
from driple.inspector.network.batching.graph_batch import Graphs
from published_recipe_kernels.kernel_library import library

PANEL = 16
"""Sizes of states that the kernels take are multiples of it."""


def kernels_for(graphs: Graphs, x: Tensor, weights: Sequence[Tensor]) -> ctypes.CDLL | None:
    """The library, if it can compute on these: a dense batch, plain float32 numbers on the CPU."""
    if not isinstance(graphs, DenseGraphs) or not graphs.counts or not plain_floats(x, graphs.adjacency, *weights):
        return None
    return library()


def plain_floats(*tensors: Tensor) -> bool:
    """Whether all are float32 numbers on the CPU, and are to be computed with as such."""
    return not torch.is_autocast_enabled("cpu") and all(
        t.dtype == torch.float32 and t.device.type == "cpu" for t in tensors
    )


def pointers(tensors: Sequence[Tensor]) -> ctypes.Array[ctypes.c_void_p]:
    """A struct of pointers. The tensors are contiguous and outlive the call."""
    return (ctypes.c_void_p * len(tensors))(*(t.data_ptr() for t in tensors))


def sizes(*numbers: int) -> ctypes.Array[ctypes.c_int]:
    """A struct of ints, with the number of threads as the last."""
    return (ctypes.c_int * (len(numbers) + 1))(*numbers, torch.get_num_threads())


def counts(numbers: Sequence[int]) -> ctypes.Array[ctypes.c_int64]:
    """One number for each graph."""
    return (ctypes.c_int64 * len(numbers))(*numbers)


def at(tensor: Tensor | None) -> ctypes.c_void_p:
    """Where its first number is; null for None."""
    return ctypes.c_void_p(None if tensor is None else tensor.data_ptr())


def filled(shape: Sequence[int], ragged: bool) -> Tensor:
    """A result to be: the kernels write rows that are nodes, and those that fill up a smaller graph stay zero."""
    return torch.zeros(shape, dtype=torch.float32) if ragged else torch.empty(shape, dtype=torch.float32)


def records(*tensors: Tensor) -> bool:
    """Whether a backward pass may follow."""
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
