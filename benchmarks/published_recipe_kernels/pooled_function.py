"""Taped: what has gradients of its own in torch's chain of them. What its backward pass needs is on a tape."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from published_recipe_kernels.buffer_pool import give_back


class Taped(torch.autograd.Function):  # type: ignore[misc]
    """Runs a batch: `tape()`, `forward(tensors, tape)`, `backward(up, tensors, tape, wants_x)`; x is the first."""

    @staticmethod
    def forward(ctx: Any, batch: Any, *tensors: Tensor) -> Tensor:
        ctx.batch, ctx.tape = batch, batch.tape()
        ctx.save_for_backward(*tensors)
        return batch.forward(tensors, ctx.tape)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, up: Tensor) -> tuple[Tensor | None, ...]:
        tape, ctx.tape = ctx.tape, None
        if tape is None:
            raise RuntimeError("a second backward pass through the same batch: compute it again first")
        found = ctx.batch.backward(up, ctx.saved_tensors, tape, ctx.needs_input_grad[1])
        give_back(tape)
        return (None, *found)
