"""Rules that infer output shapes from input shapes, for the ops of ordinary training graphs.

The outputs of an op without a rule, or with unknown inputs, are unknown, and so are those that depend on them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from driple.pipeline.graph.graphdef_proto import Message

Shape = list[int] | None
"""-1 for an unknown dimension, None for an unknown rank."""
Values = list[int] | None
"""Elements of a small integer tensor (shapes, axes, paddings); None if unknown."""

MOST_OUTPUTS = 10_000


@dataclass(frozen=True)
class OpView:
    """The input of a rule."""

    op: str
    attributes: Mapping[str, Message]
    shapes: list[Shape]
    """The shapes of its inputs; likewise below."""
    values: list[Values]

    def flag(self, key: str) -> bool:
        value = self.attributes.get(key)
        return value is not None and bool(value.b)

    def number(self, key: str, default: int = 0) -> int:
        value = self.attributes.get(key)
        return int(value.i) if value is not None and value.HasField("i") else default

    def numbers(self, key: str) -> list[int]:
        value = self.attributes.get(key)
        return [] if value is None else list(value.list.i)

    def text(self, key: str, default: str) -> str:
        value = self.attributes.get(key)
        return str(value.s.decode("ascii", "replace")) if value is not None and value.HasField("s") else default


Rule = Callable[[OpView], list[Shape]]


def follow(view: OpView) -> tuple[list[Shape] | None, list[Values]]:
    """The shapes of the outputs, None if even their number is unknown; and their elements where known."""
    rule = RULES.get(view.op)
    if rule is None:
        return None, []
    return rule(view), _elements(view)


def _first_known(view: OpView) -> list[Shape]:
    return [next((shape for shape in view.shapes if shape is not None), None)]


def _wide(shapes: list[Shape]) -> Shape:
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes) or not known:
        return None
    rank = max(map(len, known))
    padded = [[1] * (rank - len(shape)) + shape for shape in known]
    return [next((size for size in sizes if size > 1), min(sizes)) for sizes in zip(*padded, strict=True)]


def _given(position: int) -> Rule:
    """The shape that the elements of an input specify, or its rank if only the length of that input is known."""
    return lambda view: [_as_shape(view, position)]


def _as_shape(view: OpView, position: int) -> Shape:
    values, shape = view.values[position], view.shapes[position]
    if values is not None:
        return list(values)
    return [-1] * shape[0] if shape is not None and len(shape) == 1 and 0 <= shape[0] < 10 else None


def _reshape(view: OpView) -> list[Shape]:
    wanted, had = _as_shape(view, 1), view.shapes[0]
    if wanted is None or wanted.count(-1) != 1 or had is None or min(had, default=1) < 0:
        return [wanted]
    rest = math.prod(size for size in wanted if size != -1)
    return [[math.prod(had) // rest if size == -1 and rest else size for size in wanted]]


def _reduced(view: OpView) -> list[Shape]:
    shape, axes = view.shapes[0], view.values[1]
    if shape is None or axes is None:
        return [None]
    gone = {axis % len(shape) for axis in axes} if shape else set()
    if view.flag("keep_dims"):
        return [[1 if axis in gone else size for axis, size in enumerate(shape)]]
    return [[size for axis, size in enumerate(shape) if axis not in gone]]


def _matmul(view: OpView) -> list[Shape]:
    left, right = view.shapes[:2]
    if left is None or right is None:
        return [None]
    turned = [any(view.flag(key) for key in keys) for keys in (("transpose_a", "adj_x"), ("transpose_b", "adj_y"))]
    batch = _wide([left[:-2], right[:-2]]) or []
    return [[*batch, left[-1] if turned[0] else left[-2], right[-2] if turned[1] else right[-1]]]


def _window(view: OpView) -> list[Shape]:
    """Convolutions and pools."""
    shape = view.shapes[0]
    pool = view.op in ("MaxPool", "AvgPool")
    kernel = None if pool else view.shapes[1]
    if shape is None or len(shape) != 4 or (kernel is None and not pool):
        return [None]
    layout = view.text("data_format", "NHWC")
    rows, columns, channel = layout.index("H"), layout.index("W"), layout.index("C")
    strides = view.numbers("strides")
    dilations = view.numbers("dilations") or [1] * 4
    paddings = view.numbers("explicit_paddings") or [0] * 8
    out = list(shape)
    for axis, position in ((rows, 0), (columns, 1)):
        size = view.numbers("ksize")[axis] if kernel is None else (kernel[position] - 1) * dilations[axis] + 1
        if shape[axis] < 0 or size < 0:
            out[axis] = -1
        elif view.text("padding", "VALID") == "SAME":
            out[axis] = -(-shape[axis] // strides[axis])
        else:
            padded = shape[axis] + paddings[2 * axis] + paddings[2 * axis + 1]
            out[axis] = max(0, (padded - size) // strides[axis] + 1)
    if kernel is not None:
        out[channel] = kernel[2] * kernel[3] if view.op == "DepthwiseConv2dNative" else kernel[3]
    return [out]


def _channels(view: OpView, position: int = 0) -> list[int] | None:
    shape = view.shapes[position]
    if not shape:
        return None
    return [shape[1] if view.text("data_format", "NHWC") == "NCHW" else shape[-1]]


def _batch_norm(view: OpView) -> list[Shape]:
    extra: list[Shape] = [None] if view.op.endswith("V3") else []
    return [view.shapes[0], *[_channels(view)] * 4, *extra]


def _cross_entropy(view: OpView) -> list[Shape]:
    logits = view.shapes[0]
    return [logits[:1] if logits else None, logits]


def _transpose(view: OpView) -> list[Shape]:
    shape, order = view.shapes[0], view.values[1]
    if shape is None:
        return [None]
    return [[-1] * len(shape) if order is None else [shape[axis] for axis in order]]


def _expanded(view: OpView) -> list[Shape]:
    shape, axis = view.shapes[0], view.values[1]
    if shape is None or not axis:
        return [None]
    at = axis[0] if axis[0] >= 0 else axis[0] + len(shape) + 1
    return [[*shape[:at], 1, *shape[at:]]]


def _squeezed(view: OpView) -> list[Shape]:
    shape = view.shapes[0]
    if shape is None:
        return [None]
    gone = {axis % len(shape) for axis in view.numbers("squeeze_dims")}
    return [[size for axis, size in enumerate(shape) if (axis not in gone if gone else size != 1)]]


def _packed(view: OpView) -> list[Shape]:
    shape = _first_known(view)[0]
    if shape is None:
        return [None]
    axis = view.number("axis")
    at = axis if axis >= 0 else axis + len(shape) + 1
    return [[*shape[:at], len(view.shapes), *shape[at:]]]


def _unpacked(view: OpView) -> list[Shape]:
    shape = view.shapes[0]
    count = min(view.number("num"), MOST_OUTPUTS)
    if shape is None:
        return [None] * count
    axis = view.number("axis") % len(shape)
    return [shape[:axis] + shape[axis + 1 :]] * count


def _concatenated(view: OpView) -> list[Shape]:
    parts, axis = view.shapes[:-1], view.values[-1]
    known = [part for part in parts if part]
    if not known or not axis or len(known) < len(parts):
        return [None]
    at = axis[0] % len(known[0])
    sizes = [part[at] for part in known]
    return [[*known[0][:at], -1 if min(sizes) < 0 else sum(sizes), *known[0][at + 1 :]]]


def _split(view: OpView) -> list[Shape]:
    count, axis, shape = min(view.number("num_split", 1), MOST_OUTPUTS), view.values[0], view.shapes[1]
    if not axis or not shape:
        return [None] * count
    at = axis[0] % len(shape)
    return [[*shape[:at], shape[at] // count if shape[at] >= 0 else -1, *shape[at + 1 :]]] * count


def _slice(view: OpView) -> list[Shape]:
    shape, begin, size = view.shapes[0], view.values[1], _as_shape(view, 2)
    if shape is None or begin is None or size is None:
        return [size]
    return [
        [
            whole - first if wanted == -1 and whole >= 0 else wanted
            for whole, first, wanted in zip(shape, begin, size, strict=True)
        ]
    ]


def _strided(view: OpView) -> list[Shape]:
    """As Python's own brackets: `new_axis_mask` is None, `ellipsis_mask` is `...`, `shrink_axis_mask` a plain index."""
    shape, begin, end, step = view.shapes[0], *view.values[1:4]
    if shape is None or begin is None or end is None or step is None:
        return [None]
    masks = {key: view.number(f"{key}_mask") for key in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    added = sum(bool(masks["new_axis"] >> entry & 1) for entry in range(len(begin)))
    out: list[int] = []
    axis = 0
    for entry, (first, last, stride) in enumerate(zip(begin, end, step, strict=True)):
        on = {key for key, mask in masks.items() if mask >> entry & 1}
        if "ellipsis" in on:
            covered = len(shape) - (len(begin) - 1 - added)
            out += shape[axis : axis + covered]
            axis += covered
        elif "new_axis" in on:
            out.append(1)
        else:
            if "shrink_axis" not in on:
                ends = slice(None if "begin" in on else first, None if "end" in on else last, stride)
                out.append(len(range(*ends.indices(shape[axis]))) if shape[axis] >= 0 else -1)
            axis += 1
    return [out + shape[axis:]]


def _padded(view: OpView) -> list[Shape]:
    shape, pads = view.shapes[0], view.values[1]
    if shape is None or pads is None:
        return [shape and [-1] * len(shape)]
    return [[size + pads[2 * axis] + pads[2 * axis + 1] if size >= 0 else -1 for axis, size in enumerate(shape)]]


def _tiled(view: OpView) -> list[Shape]:
    shape, times = view.shapes[0], view.values[1]
    if shape is None or times is None:
        return [shape and [-1] * len(shape)]
    return [[size * count if size >= 0 else -1 for size, count in zip(shape, times, strict=True)]]


def _gathered(view: OpView) -> list[Shape]:
    shape, picks = view.shapes[:2]
    axis = view.values[2] if len(view.values) > 2 else [0]
    if shape is None or picks is None or not axis or view.number("batch_dims"):
        return [None]
    at = axis[0] % len(shape)
    return [[*shape[:at], *picks, *shape[at + 1 :]]]


def _one_hot(view: OpView) -> list[Shape]:
    shape, depth = view.shapes[0], view.values[1]
    if shape is None or view.number("axis", -1) != -1:
        return [None]
    return [[*shape, depth[0] if depth else -1]]


def _picked(view: OpView) -> list[Shape]:
    shape, axis = view.shapes[0], view.values[1]
    if shape is None or not axis:
        return [None]
    return [[size for at, size in enumerate(shape) if at != axis[0] % len(shape)]]


def _segments(view: OpView) -> list[Shape]:
    shape, ids, count = view.shapes[0], view.shapes[1], view.values[2]
    if shape is None or ids is None:
        return [None]
    return [[count[0] if count else -1, *shape[len(ids) :]]]


def _resized(view: OpView) -> list[Shape]:
    shape, size = view.shapes[0], view.values[1]
    return [None if shape is None or size is None else [shape[0], *size, shape[-1]]]


def _range(view: OpView) -> list[Shape]:
    start, limit, step = view.values[:3]
    if not start or not limit or not step:
        return [[-1]]
    return [[len(range(start[0], limit[0], step[0]))]]


_GROUPS: tuple[tuple[Rule, str], ...] = (
    (
        lambda view: [view.shapes[0]],
        "Identity StopGradient PreventGradient Snapshot CheckNumerics Cast ZerosLike OnesLike Relu Relu6 Elu Selu "
        "LeakyRelu Gelu Sigmoid Tanh Softplus Softsign Softmax LogSoftmax Exp Log Log1p Expm1 Neg Abs Sign Square "
        "Sqrt Rsqrt Reciprocal Inv Floor Ceil Round Erf Erfc Sin Cos LogicalNot IsFinite IsNan IsInf BiasAdd Cumsum "
        "ReverseV2 ReverseSequence InvertPermutation MatrixBandPart LRN LRNGrad ReluGrad Relu6Grad EluGrad SeluGrad "
        "LeakyReluGrad SigmoidGrad TanhGrad SqrtGrad RsqrtGrad SoftplusGrad ReciprocalGrad MaxPoolGrad Enter "
        "RefEnter Exit NextIteration RefNextIteration ReadVariableOp VarIsInitializedOp Assign AssignAdd AssignSub "
        "ScatterAdd ScatterSub ScatterUpdate ApplyGradientDescent ApplyMomentum ApplyAdam ApplyRMSProp ApplyAdagrad "
        "SparseApplyMomentum SparseApplyAdam SparseApplyAdagrad",
    ),
    (lambda view: [view.shapes[1]], "Select StackPushV2"),
    (
        lambda view: [_wide(view.shapes)],
        "Add AddV2 Sub Mul MulNoNan Div DivNoNan RealDiv FloorDiv TruncateDiv FloorMod Mod Maximum Minimum Pow "
        "SquaredDifference Equal NotEqual Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr Atan2 BitwiseAnd "
        "BitwiseOr SelectV2",
    ),
    (_first_known, "AddN"),
    (
        _given(0),
        "Fill RandomUniform RandomStandardNormal TruncatedNormal RandomUniformInt StridedSliceGrad "
        "Conv2DBackpropInput DepthwiseConv2dNativeBackpropInput AvgPoolGrad",
    ),
    (_given(1), "BroadcastTo Conv2DBackpropFilter DepthwiseConv2dNativeBackpropFilter"),
    (_reduced, "Sum Mean Max Min Prod All Any"),
    (_matmul, "MatMul BatchMatMul BatchMatMulV2 BatchMatMulV3"),
    (_window, "Conv2D DepthwiseConv2dNative MaxPool AvgPool"),
    (_batch_norm, "FusedBatchNorm FusedBatchNormV2 FusedBatchNormV3"),
    (
        lambda view: [view.shapes[0], _channels(view), _channels(view), [0], [0]],
        "FusedBatchNormGrad FusedBatchNormGradV2 FusedBatchNormGradV3",
    ),
    (lambda view: [_channels(view)], "BiasAddGrad"),
    (_cross_entropy, "SparseSoftmaxCrossEntropyWithLogits SoftmaxCrossEntropyWithLogits"),
    (_padded, "Pad PadV2 MirrorPad"),
    (_picked, "ArgMax ArgMin"),
    (_reshape, "Reshape"),
    (_transpose, "Transpose"),
    (_expanded, "ExpandDims"),
    (_squeezed, "Squeeze"),
    (_packed, "Pack"),
    (_unpacked, "Unpack"),
    (_concatenated, "ConcatV2"),
    (lambda view: view.shapes[1:], "ConcatOffset"),
    (_split, "Split"),
    (_slice, "Slice"),
    (_strided, "StridedSlice"),
    (_tiled, "Tile"),
    (_gathered, "GatherV2 Gather ResourceGather"),
    (_one_hot, "OneHot"),
    (_segments, "UnsortedSegmentSum"),
    (_resized, "ResizeNearestNeighbor ResizeBilinear"),
    (_range, "Range"),
    (lambda view: [None if shape is None else [len(shape)] for shape in view.shapes], "Shape ShapeN"),
    (lambda view: view.shapes[:1] * 2, "Switch"),
    (lambda view: [*_first_known(view), []], "Merge"),
    (lambda view: [[-1], [-1]], "BroadcastGradientArgs"),
    # The inputs of an inlined call are the results of the function.
    (lambda view: view.shapes, "IdentityN PartitionedCall StatefulPartitionedCall"),
    (lambda view: [[2], []], "TensorArrayV3 TensorArrayGradV3"),
    (lambda view: [[2]], "StackV2 ResourceConditionalAccumulator"),
    (
        lambda view: [[]],
        "Size Rank L2Loss LoopCond TensorArrayScatterV3 TensorArrayWriteV3 TensorArraySizeV3 FIFOQueueV2",
    ),
    (
        lambda view: [],
        "NoOp ControlTrigger Assert AssignVariableOp AssignAddVariableOp AssignSubVariableOp "
        "ResourceApplyGradientDescent ResourceApplyMomentum ResourceApplyKerasMomentum ResourceApplyAdam "
        "ResourceApplyRMSProp ResourceAccumulatorApplyGradient AccumulatorApplyGradient "
        "SparseAccumulatorApplyGradient QueueEnqueueV2",
    ),
)
RULES: dict[str, Rule] = {op: rule for rule, ops in _GROUPS for op in ops.split()}


def _elements(view: OpView) -> list[Values]:
    """Elements of the outputs, for ops that compute shapes."""
    first = view.values[0] if view.values else None
    if view.op in ("Shape", "ShapeN"):
        return [shape if shape is None or min(shape, default=0) >= 0 else None for shape in view.shapes]
    if view.op in ("Identity", "Cast", "Enter", "Reshape", "ExpandDims", "Squeeze"):
        return [first]
    if view.op == "Pack":
        known = [value[0] for value in view.values if value is not None and len(value) == 1]
        return [known if len(known) == len(view.values) else None]
    if view.op == "ConcatV2":
        parts = [value for value in view.values[:-1] if value is not None]
        return [sum(parts, []) if len(parts) == len(view.values) - 1 else None]
    if view.op == "StridedSlice" and first is not None and view.shapes[0] == [len(first)]:
        return [_part(view, first)]
    if view.op == "Slice" and first is not None and view.values[1] and view.values[2]:
        begin, size = view.values[1][0], view.values[2][0]
        return [first[begin:] if size == -1 else first[begin : begin + size]]
    if view.op == "GatherV2" and first is not None and view.values[1] is not None:
        return [[first[position] for position in view.values[1]]]
    if view.op == "Prod" and first is not None:
        return [[math.prod(first)]]
    if view.op == "Size" and view.shapes[0] is not None and min(view.shapes[0], default=0) >= 0:
        return [[math.prod(view.shapes[0])]]
    if view.op == "Rank" and view.shapes[0] is not None:
        return [[len(view.shapes[0])]]
    if view.op == "Range" and all(view.values[:3]):
        start, limit, step = (value[0] for value in view.values[:3] if value)
        return [list(range(start, limit, step))] if abs(limit - start) <= 64 * abs(step) else [None]
    if view.op == "InvertPermutation" and first is not None:
        return [[first.index(position) for position in range(len(first))]]
    if view.op in _ARITHMETIC and first is not None and view.values[1] is not None:
        return [_pairwise(_ARITHMETIC[view.op], first, view.values[1])]
    return []


def _part(view: OpView, items: list[int]) -> Values:
    """The elements that a StridedSlice with one entry takes."""
    begin, end, step = view.values[1:4]
    if not begin or not end or not step or len(begin) != 1 or view.number("new_axis_mask"):
        return None
    if view.number("shrink_axis_mask"):
        return [items[begin[0]]]
    whole = view.number("ellipsis_mask")
    first = None if whole or view.number("begin_mask") else begin[0]
    return items[first : None if whole or view.number("end_mask") else end[0] : step[0]]


_ARITHMETIC: dict[str, Callable[[int, int], int]] = {
    "Add": lambda a, b: a + b,
    "AddV2": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "FloorDiv": lambda a, b: a // b,
    "FloorMod": lambda a, b: a % b,
    "Maximum": max,
    "Minimum": min,
}


def _pairwise(work: Callable[[int, int], int], left: list[int], right: list[int]) -> Values:
    if 1 in (len(left), len(right)):
        count = max(len(left), len(right))
        left, right = (items * count if len(items) == 1 else items for items in (left, right))
    return [work(a, b) for a, b in zip(left, right, strict=True)]
