"""Output types of an op from its attributes: a few rules in place of TensorFlow's op registry.

The tables are the exceptions: ops whose attributes do not name the output type.
"""

from __future__ import annotations

from collections.abc import Mapping

from driple.pipeline.graph.graphdef_proto import Message, dtype_name

_BOOL = (
    "All Any Equal NotEqual Less LessEqual Greater GreaterEqual LogicalAnd LogicalOr LogicalNot LoopCond InTopK "
    "InTopKV2 IsFinite IsInf IsNan IsVariableInitialized ApproximateEqual"
)
_HANDLE = (
    "VarHandleOp FIFOQueueV2 RandomShuffleQueueV2 PaddingFIFOQueueV2 ResourceConditionalAccumulator StackV2 "
    "HashTableV2 Iterator IteratorV2 AnonymousIteratorV3 TensorListReserve TensorListSetItem TensorListPushBack "
    "EmptyTensorList OptionalFromValue"
)
_FIXED = {
    **dict.fromkeys(_BOOL.split(), ("bool",)),
    **dict.fromkeys(_HANDLE.split(), ("resource",)),
    **dict.fromkeys(("ConditionalAccumulator", "SparseConditionalAccumulator"), ("string",)),
    **dict.fromkeys(("TensorArrayV3", "TensorArrayGradV3"), ("resource", "float32")),
    **dict.fromkeys(("TensorArrayScatterV3", "TensorArrayWriteV3"), ("float32",)),
    **dict.fromkeys(("TensorArraySizeV3", "ConcatOffset", "Rank"), ("int32",)),
    "Where": ("int64",),
}
# Types of the outputs after the first.
_LATER = {"Merge": "int32", "TopKV2": "int32"}
_LATER_ATTRIBUTE = {
    "Unique": "out_idx",
    **dict.fromkeys(("FusedBatchNormV2", "FusedBatchNormV3", "FusedBatchNormGradV2", "FusedBatchNormGradV3"), "U"),
}
_ATTRIBUTES = (
    *("dtype", "DstT", "Tout", "out_type", "output_type", "output_dtype", "component_types", "output_types"),
    *("elem_type", "element_dtype", "T", "Tparams", "Tidx"),
)
_DEFAULTS = {"Shape": "int32", "ShapeN": "int32", "Size": "int32", "ArgMax": "int64", "ArgMin": "int64"}


def output_dtypes(op: str, attributes: Mapping[str, Message], outputs: int) -> list[str | None]:
    """The type of each output; None if unknown."""
    if op == "SparseAccumulatorTakeGradient":
        return ["int64", *_of(attributes.get("dtype")), "int64"][:outputs]
    if op in _FIXED:
        return _spread(list(_FIXED[op]), outputs)
    found: list[str | None] = next((types for key in _ATTRIBUTES if (types := _of(attributes.get(key)))), [])
    if op in _DEFAULTS and not (_of(attributes.get("out_type")) or _of(attributes.get("output_type"))):
        found = [_DEFAULTS[op]]
    later = _of(attributes.get(_LATER_ATTRIBUTE.get(op, ""))) or ([_LATER[op]] if op in _LATER else [])
    return _spread(found[:1] + later if later else found, outputs)


def _of(value: Message | None) -> list[str | None]:
    if value is None:
        return []
    return [dtype_name(number) for number in ([value.type] if value.HasField("type") else value.list.type)]


def _spread(types: list[str | None], outputs: int) -> list[str | None]:
    """One type per output: the last one repeats."""
    last = types[-1] if types else None
    return [*types, *[last] * (outputs - len(types))][:outputs]
