"""FLOPs from shapes: by hand, and where nothing can be said."""

from __future__ import annotations

import math

import pytest

from driple.contracts.op_flops import Shapes, flops


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "expected"),
    [
        ("Conv2D", [[1, 8, 8, 3], [3, 3, 3, 4]], [[1, 6, 6, 4]], 2 * 6 * 6 * 4 * 27),
        ("Conv2DBackpropInput", [[4], [3, 3, 3, 4], [1, 6, 6, 4]], [[1, 8, 8, 3]], 2 * 6 * 6 * 4 * 27),
        ("Conv2DBackpropFilter", [[1, 8, 8, 3], [4], [1, 6, 6, 4]], [[3, 3, 3, 4]], 2 * 6 * 6 * 4 * 27),
        ("DepthwiseConv2dNative", [[1, 8, 8, 3], [3, 3, 3, 1]], [[1, 6, 6, 3]], 2 * 6 * 6 * 3 * 9),
        ("Conv3D", [[1, 4, 8, 8, 3], [3, 3, 3, 3, 4]], [[1, 2, 6, 6, 4]], 2 * 2 * 6 * 6 * 4 * 81),
        ("MatMul", [[5, 7], [7, 11]], [[5, 11]], 2 * 5 * 7 * 11),
        ("MatMul", [[7, 5], [11, 7]], [[5, 11]], 2 * 5 * 7 * 11),  # both transposed
        ("BatchMatMulV2", [[2, 3, 5, 7], [2, 3, 7, 11]], [[2, 3, 5, 11]], 2 * 6 * 5 * 7 * 11),
        ("AddN", [[4], [4], [4]], [[4]], 8),
        ("BiasAddGrad", [[16, 4]], [[4]], 60),
        ("Mul", [[4, 4], []], [[4, 4]], 16),
    ],
)
def test_by_hand(op: str, inputs: Shapes, outputs: Shapes, expected: int) -> None:
    assert flops(op, inputs, outputs) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("op", "inputs", "outputs"),
    [
        ("Relu", [[4]], [[4]]),
        ("Conv2D", [[1, 8, 8, 3], None], [[1, 6, 6, 4]]),
        ("Conv2D", [[1, 8, 8, 3]], [[1, 6, 6, 4]]),
        ("MatMul", [[5, -1], [-1, 11]], [[5, 11]]),
        ("MatMul", [[0, 7], [7, 11]], [[0, 11]]),
        ("Mul", [], []),
    ],
)
def test_what_cannot_be_said_is_not_0(op: str, inputs: Shapes, outputs: Shapes) -> None:
    assert math.isnan(flops(op, inputs, outputs))
