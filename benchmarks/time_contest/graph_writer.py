"""GraphWriter: writes the ops of a training step with legal shapes: a forward pass, then its gradients.

Ops have the names, sizes and FLOPs of TensorFlow's, and gradients follow from a tape, so a generated graph looks to a
reader of op types, bytes and edges like that of a worker. Nothing is computed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from math import ceil, prod
from typing import NamedTuple

import numpy as np

from driple.pipeline.graph.public import OpGraph

BYTES_OF_A_NUMBER = 4


class Tensor(NamedTuple):
    """The output of an op."""

    op: int
    shape: tuple[int, ...]


Gradients = Callable[[Tensor], Sequence["Tensor | None"]]
"""Writes the gradient ops of an op, from the gradient of its output: one for each input, None without."""


class GraphWriter:
    """Ops in the order in which they are written. A shape that an op cannot have raises ValueError."""

    def __init__(self, batch_size: int) -> None:
        self.batch_size = batch_size
        self._ops: list[str] = []
        self._bytes: list[float] = []
        self._flops: list[float] = []
        self._edges: list[tuple[int, int]] = []
        self._tape: list[tuple[Tensor, Sequence[Tensor], Gradients]] = []

    def op(self, kind: str, inputs: Sequence[Tensor], shape: Sequence[int], flops: float = np.nan) -> Tensor:
        """Any op, without gradients."""
        if min(shape, default=1) < 1:
            raise ValueError(f"{kind}: no tensor has the shape {tuple(shape)}")
        number = len(self._ops)
        self._ops.append(kind)
        self._bytes.append(float(BYTES_OF_A_NUMBER * prod(shape)))
        self._flops.append(flops)
        self._edges += [(one.op, number) for one in inputs]
        return Tensor(number, tuple(shape))

    def with_gradient(
        self, kind: str, inputs: Sequence[Tensor], shape: Sequence[int], gradients: Gradients, flops: float = np.nan
    ) -> Tensor:
        """An op that the backward pass goes through."""
        found = self.op(kind, inputs, shape, flops)
        self._tape.append((found, inputs, gradients))
        return found

    def variable(self, *shape: int) -> Tensor:
        """What a worker has of a variable of a server."""
        return self.op("Identity", (), shape)

    def source(self, *shape: int) -> Tensor:
        """Synthetic input."""
        return self.op("RandomStandardNormal", [self.op("Const", (), (len(shape),))], shape, float(prod(shape)))

    def elementwise(self, kind: str, x: Tensor, gradient: str) -> Tensor:
        size = float(prod(x.shape))
        return self.with_gradient(
            kind, [x], x.shape, lambda up: [self.op(gradient, [up, x], x.shape, size)], flops=size
        )

    def add(self, first: Tensor, second: Tensor) -> Tensor:
        if first.shape != second.shape:
            raise ValueError(f"AddV2: shapes {first.shape} and {second.shape} differ")
        flops = float(prod(first.shape))
        return self.with_gradient("AddV2", [first, second], first.shape, lambda up: [up, up], flops)

    def multiply(self, first: Tensor, second: Tensor) -> Tensor:
        if first.shape != second.shape:
            raise ValueError(f"Mul: shapes {first.shape} and {second.shape} differ")
        flops = float(prod(first.shape))
        return self.with_gradient(
            *("Mul", [first, second], first.shape),
            lambda up: [self.op("Mul", [up, other], up.shape, flops) for other in (second, first)],
            flops,
        )

    def concat(self, parts: Sequence[Tensor]) -> Tensor:
        """Along the last dimension."""
        if len({part.shape[:-1] for part in parts}) != 1:
            raise ValueError(
                f"ConcatV2: shapes {[part.shape for part in parts]} differ in more than the last dimension"
            )
        shape = (*parts[0].shape[:-1], sum(part.shape[-1] for part in parts))
        axis = self.op("Const", (), ())

        def gradients(up: Tensor) -> list[Tensor]:
            offsets = self.op("ConcatOffset", [axis], (len(parts),))
            return [self.op("Slice", [up, offsets], part.shape) for part in parts]

        return self.with_gradient("ConcatV2", [*parts, axis], shape, lambda up: [*gradients(up), None])

    def reshape(self, x: Tensor, *shape: int) -> Tensor:
        if prod(shape) != prod(x.shape):
            raise ValueError(f"Reshape: {x.shape} has no shape {shape}")
        return self.with_gradient("Reshape", [x], shape, lambda up: [self.op("Reshape", [up], x.shape)])

    def transpose(self, x: Tensor, *order: int) -> Tensor:
        shape = [x.shape[place] for place in order]
        return self.with_gradient("Transpose", [x], shape, lambda up: [self.op("Transpose", [up], x.shape)])

    def matmul(self, first: Tensor, second: Tensor) -> Tensor:
        """Of the last two dimensions."""
        *many, rows, inner = first.shape
        if second.shape[:-1] != (*many, inner):
            raise ValueError(f"MatMul: shapes {first.shape} and {second.shape}")
        shape = (*many, rows, second.shape[-1])
        kind, flops = "BatchMatMulV2" if many else "MatMul", 2.0 * prod(shape) * inner

        def gradients(up: Tensor) -> list[Tensor]:
            return [
                self.op(kind, [up, second], first.shape, flops),
                self.op(kind, [first, up], second.shape, flops),
            ]

        return self.with_gradient(kind, [first, second], shape, gradients, flops)

    def dense(self, x: Tensor, units: int) -> Tensor:
        """A layer on the last dimension of a matrix."""
        product = self.matmul(x, self.variable(x.shape[-1], units))
        size = float(prod(product.shape))
        bias = self.variable(units)
        return self.with_gradient(
            "BiasAdd",
            [product, bias],
            product.shape,
            lambda up: [up, self.op("BiasAddGrad", [up], (units,), size)],
            size,
        )

    def convolution(self, x: Tensor, channels: int, kernel: int, stride: int = 1, *, depthwise: bool = False) -> Tensor:
        """With padding, so that only the stride makes an image smaller; depthwise keeps the channels."""
        batch, height, width, inputs = x.shape
        channels = inputs if depthwise else channels
        shape = (batch, ceil(height / stride), ceil(width / stride), channels)
        weights = self.variable(kernel, kernel, inputs, 1 if depthwise else channels)
        flops = 2.0 * prod(shape) * kernel * kernel * (1 if depthwise else inputs)
        kind = "DepthwiseConv2dNative" if depthwise else "Conv2D"

        def gradients(up: Tensor) -> list[Tensor]:
            sizes = self.op("ShapeN", [x, weights], (4,))
            return [
                self.op(f"{kind}BackpropInput", [sizes, weights, up], x.shape, flops),
                self.op(f"{kind}BackpropFilter", [x, sizes, up], weights.shape, flops),
            ]

        return self.with_gradient(kind, [x, weights], shape, gradients, flops)

    def norm(self, x: Tensor) -> Tensor:
        """Batch normalisation."""
        scale, offset = self.variable(x.shape[-1]), self.variable(x.shape[-1])

        def gradients(up: Tensor) -> list[Tensor]:
            down = self.op("FusedBatchNormGradV3", [up, x, scale], x.shape)
            return [down, down, down]

        return self.with_gradient("FusedBatchNormV3", [x, scale, offset], x.shape, gradients)

    def pool(self, x: Tensor, kind: str, stride: int) -> Tensor:
        """`Max` or `Avg`."""
        batch, height, width, channels = x.shape
        shape = (batch, ceil(height / stride), ceil(width / stride), channels)
        return self.with_gradient(f"{kind}Pool", [x], shape, lambda up: [self.op(f"{kind}PoolGrad", [up, x], x.shape)])

    def mean(self, x: Tensor) -> Tensor:
        """Over the image."""

        def gradients(up: Tensor) -> list[Tensor]:
            tiled = self.op("Tile", [up], x.shape)
            return [self.op("RealDiv", [tiled], x.shape, float(prod(x.shape)))]

        return self.with_gradient("Mean", [x], (x.shape[0], x.shape[-1]), gradients, float(prod(x.shape)))

    def lookup(self, rows: int, width: int, count: int) -> Tensor:
        """Rows of an embedding, [batch * count, width]."""
        table, chosen = self.variable(rows, width), self.op("RandomUniformInt", (), (self.batch_size * count,))
        shape = (self.batch_size * count, width)
        return self.with_gradient(
            *("GatherV2", [table, chosen], shape),
            lambda up: [self.op("UnsortedSegmentSum", [up, chosen], (rows, width)), None],
        )

    def finish(self, logits: Tensor) -> OpGraph:
        """Adds the loss and the backward pass."""
        rows = (logits.shape[0],)
        labels = self.op("RandomUniformInt", (), rows)
        loss = self.op("SparseSoftmaxCrossEntropyWithLogits", [logits, labels], rows)
        self.op("Mean", [loss], ())
        found: dict[int, list[Tensor]] = defaultdict(list)
        found[logits.op].append(self.op("Mul", [loss], logits.shape, float(prod(logits.shape))))
        for output, inputs, gradients in reversed(self._tape):
            parts = found.pop(output.op, [])
            if not parts:
                continue
            up = parts[0] if len(parts) == 1 else self.op("AddN", parts, output.shape, float(prod(output.shape)))
            for one, gradient in zip(inputs, gradients(up), strict=True):
                if gradient is not None:
                    found[one.op].append(gradient)
        edges = np.unique(np.array(self._edges, dtype=np.int64).reshape(-1, 2), axis=0)
        return OpGraph(
            ops=tuple(self._ops),
            bytes=np.array(self._bytes),
            flops=np.array(self._flops),
            edges=edges,
            batch_size=self.batch_size,
        )
