"""Looks: a query looks at the nodes of a dense batch again and again, as Set2Set does.

    a = softmax over nodes of x . q,   r = sum of a x

With s the gradient of the scores and r' that of r, every look adds a r' + s q to the gradient of x. Left to torch, this
is written and added for all nodes twice a look. Here the looks keep their vectors, and one product adds up all of them
in the end: the first look's backward pass is the last, because every later query comes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

Softmax = Callable[[Tensor], Tensor]
"""Of [B, N, 1], over the nodes of each graph."""


class AttentionPool:
    """From queries [B, F], each of them computed from the answer to the one before, to r [B, F]."""

    def __init__(self, x: Tensor, softmax: Softmax) -> None:
        """Take states [B, N, F]."""
        self.x = x
        self.softmax = softmax
        self.taken = 0
        self.kept: list[tuple[Tensor, Tensor]] = []
        """Columns [B, N, 1] and rows [B, 1, F] whose products are the gradient of x."""

    def __call__(self, query: Tensor) -> Tensor:
        found: Tensor = _Look.apply(self, self.x, query)
        self.taken += 1
        return found

    def gradient(self) -> Tensor:
        """Of x, by all looks whose backward pass was."""
        columns, rows = zip(*self.kept, strict=True)
        self.kept.clear()
        return torch.bmm(torch.cat(columns, dim=2), torch.cat(rows, dim=1))


class _Look(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, looks: AttentionPool, x: Tensor, query: Tensor) -> Tensor:
        weights = looks.softmax(_dot(x, query))
        ctx.looks, ctx.first = looks, looks.taken == 0
        ctx.save_for_backward(x, query, weights)
        return torch.bmm(weights.transpose(1, 2), x).squeeze(1)

    @staticmethod
    @once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, up: Tensor) -> tuple[None, Tensor | None, Tensor]:
        x, query, weights = ctx.saved_tensors
        along = _dot(x, up)
        scores = weights * (along - torch.bmm(weights.transpose(1, 2), along))
        of_query = torch.bmm(scores.transpose(1, 2), x).squeeze(1)
        if not ctx.needs_input_grad[1]:
            return None, None, of_query
        ctx.looks.kept += [(weights, up.unsqueeze(1)), (scores, query.unsqueeze(1))]
        return None, ctx.looks.gradient() if ctx.first else None, of_query


def _dot(x: Tensor, query: Tensor) -> Tensor:
    """[B, N, 1]. A row times a matrix: the same as a matrix times a column takes seven times as long on a CPU."""
    return torch.bmm(query.unsqueeze(1), x.transpose(1, 2)).transpose(1, 2)
