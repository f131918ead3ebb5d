"""Amounts of work of a training step, each of which takes time in proportion: FLOPs, bytes and ops by class.

Convolutions also count by the bytes that they read and write: a convolution with few channels is bound by memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from weakref import WeakKeyDictionary

import numpy as np

from driple.contracts.errors import BadInput
from driple.inspector.data.array_types import FloatArray
from driple.inspector.data.examples import Example
from driple.pipeline.graph.public import CLASSES, OpGraph, class_numbers

FLOPS, BYTES, OPS, TOUCHED = "flops", "bytes", "ops", "touched"
"""Units: floating-point operations, bytes of outputs, ops, bytes of inputs and outputs."""

ALL = tuple(CLASSES)
COMPUTING = (
    *("convolution", "convolution_gradient", "depthwise", "matmul", "normalisation", "pooling", "elementwise"),
    *("reduction", "movement", "lookup"),
)
CONVOLUTIONS = ("convolution", "convolution_gradient")
AMOUNTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "flops": (FLOPS, ALL),
    "convolution_flops": (FLOPS, ("convolution",)),
    "convolution_gradient_flops": (FLOPS, ("convolution_gradient",)),
    "depthwise_flops": (FLOPS, ("depthwise",)),
    "matmul_flops": (FLOPS, ("matmul",)),
    "bytes": (BYTES, ALL),
    "elementwise_bytes": (BYTES, ("elementwise", "normalisation", "pooling", "reduction")),
    "movement_bytes": (BYTES, ("movement", "lookup", "alias")),
    "convolution_bytes": (TOUCHED, CONVOLUTIONS),
    "ops": (OPS, COMPUTING),
    "convolution_ops": (OPS, CONVOLUTIONS),
    "update_ops": (OPS, ("update",)),
    "loop_ops": (OPS, ("loop",)),
}
"""Unit and op classes of each amount."""
GENERAL = ("flops", "bytes", "ops")
"""Amounts that every graph has: their rates are penalised less than those of some classes."""

_CACHE: WeakKeyDictionary[OpGraph, dict[int, FloatArray]] = WeakKeyDictionary()
"""By graph and sequence length."""


def work_amounts(examples: Sequence[Example]) -> FloatArray:
    """[n, AMOUNTS]. Raises BadInput for a published graph, whose ops are not known."""
    found = [_amounts(one.graph, int(one.workload.get("sequence_length") or 1)) for one in examples]
    return np.array(found).reshape(-1, len(AMOUNTS))


def _amounts(graph: object, length: int) -> FloatArray:
    if not isinstance(graph, OpGraph):
        raise BadInput("a graph of groups: step times are predicted from graphs of ops")
    known = _CACHE.setdefault(graph, {})
    if length not in known:
        times = graph.executions(length)
        classes = class_numbers(graph.ops)
        sources, targets = graph.edges.T
        read = np.bincount(targets, graph.bytes[sources], minlength=len(graph.ops))
        of_unit = {
            FLOPS: np.nan_to_num(graph.flops, nan=0.0),
            BYTES: graph.bytes,
            OPS: np.ones(len(graph.ops)),
            TOUCHED: graph.bytes + read,
        }
        sums = {unit: np.bincount(classes, times * values, minlength=len(CLASSES)) for unit, values in of_unit.items()}
        number = {name: place for place, name in enumerate(CLASSES)}
        known[length] = np.array(
            [sums[unit][[number[name] for name in names]].sum() for unit, names in AMOUNTS.values()]
        )
    return known[length]
