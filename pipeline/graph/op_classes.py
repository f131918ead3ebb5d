"""Classes of op types by what determines their cost.

The cost of a convolution follows its FLOPs, that of an elementwise op its bytes; a constant costs next to nothing. So
sums over a class predict time better than sums over all ops.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

CONVOLUTION = "convolution"
CONVOLUTION_GRADIENT = "convolution_gradient"
DEPTHWISE = "depthwise"
MATMUL = "matmul"
NORMALISATION = "normalisation"
POOLING = "pooling"
ELEMENTWISE = "elementwise"
REDUCTION = "reduction"
MOVEMENT = "movement"
LOOKUP = "lookup"
UPDATE = "update"
ALIAS = "alias"
LOOP = "loop"
CONTROL = "control"
OTHER = "other"

_TABLE = {
    # Bound by arithmetic. The two gradients of a convolution each cost as much as the convolution, by other kernels.
    CONVOLUTION: "Conv2D Conv3D Conv",
    CONVOLUTION_GRADIENT: "Conv2DBackpropInput Conv2DBackpropFilter Conv3DBackpropInput Conv3DBackpropFilter",
    # A convolution with so little arithmetic for its bytes that it is bound by memory.
    DEPTHWISE: "DepthwiseConv2dNative DepthwiseConv2dNativeBackpropInput DepthwiseConv2dNativeBackpropFilter",
    MATMUL: "MatMul BatchMatMul SparseMatMul SparseTensorDenseMatMul Einsum XlaDot CudnnRNN CudnnRNNBackprop",
    # Two or three passes over their input.
    NORMALISATION: "FusedBatchNorm FusedBatchNormGrad FusedBatchNormEx LRN LRNGrad L2Normalize "
    "BatchNormWithGlobalNormalization BatchNormWithGlobalNormalizationGrad InstanceNorm FusedLayerNorm",
    POOLING: "MaxPool MaxPoolGrad MaxPoolGradGrad MaxPoolWithArgmax AvgPool AvgPoolGrad AvgPool3D MaxPool3D "
    "ResizeNearestNeighbor ResizeNearestNeighborGrad ResizeBilinear ResizeBilinearGrad",
    # One pass, an output for every input.
    ELEMENTWISE: "Add AddN Sub Mul MulNoNan Div DivNoNan RealDiv FloorDiv TruncateDiv FloorMod Mod TruncateMod Maximum "
    "Minimum Pow Square SquaredDifference Sqrt SqrtGrad Rsqrt RsqrtGrad Exp Log Log1p Expm1 Neg Abs Sign Reciprocal "
    "ReciprocalGrad Inv InvGrad Floor Ceil Round Rint Erf Erfc Erfinv Sin Cos Tan Atan2 Relu ReluGrad Relu6 Relu6Grad "
    "Elu EluGrad Selu SeluGrad LeakyRelu LeakyReluGrad Gelu GeluGrad Sigmoid SigmoidGrad Tanh TanhGrad Softplus "
    "SoftplusGrad Softsign SoftsignGrad BiasAdd Cast Select Equal NotEqual Less LessEqual Greater GreaterEqual "
    "LogicalAnd LogicalOr LogicalNot BitwiseAnd BitwiseOr IsFinite IsNan IsInf ClipByValue Sigmoidal Bucketize "
    "RandomUniform RandomUniformInt RandomStandardNormal TruncatedNormal StatelessRandomUniform "
    "StatelessRandomNormal Multinomial CheckNumerics Cumsum MatrixBandPart",
    # Many inputs to one output.
    REDUCTION: "Sum Mean Max Min Prod All Any ArgMax ArgMin L2Loss BiasAddGrad Softmax LogSoftmax "
    "SparseSoftmaxCrossEntropyWithLogits SoftmaxCrossEntropyWithLogits EuclideanNorm LogSumExp TopK InTopK",
    # Bytes are copied, nothing is computed.
    MOVEMENT: "Transpose ConjugateTranspose Concat Split SplitV Slice StridedSlice StridedSliceGrad Pad MirrorPad "
    "MirrorPadGrad Tile Pack Unpack Reverse ReverseSequence BroadcastTo Fill ZerosLike OnesLike SpaceToBatchND "
    "BatchToSpaceND SpaceToDepth DepthToSpace OneHot Copy Roll DeepCopy",
    # Rows by their numbers: embeddings, their gradients, sparse tensors.
    LOOKUP: "Gather GatherNd ResourceGather ScatterNd TensorScatterUpdate TensorScatterAdd DynamicStitch "
    "DynamicPartition ParallelDynamicStitch UnsortedSegmentSum SegmentSum SparseSegmentSum SparseSegmentMean "
    "SparseSegmentSqrtN SparseSegmentSumGrad SparseSegmentMeanGrad Unique UniqueWithCounts Where ListDiff BooleanMask",
    # Variables and what gathers their gradients.
    UPDATE: "Assign AssignAdd AssignSub AssignVariableOp AssignAddVariableOp AssignSubVariableOp ReadVariableOp "
    "Variable VarHandleOp VarIsInitializedOp IsVariableInitialized ScatterAdd ScatterSub ScatterUpdate "
    "TemporaryVariable DestroyTemporaryVariable",
    # The same bytes under another name or shape.
    ALIAS: "Identity IdentityN Reshape Squeeze ExpandDims StopGradient PreventGradient Snapshot Bitcast EnsureShape",
    # TensorFlow 1's while loops: their ops run once for each token, and the graph shows them once.
    LOOP: "Enter RefEnter Exit RefExit Merge RefMerge Switch RefSwitch NextIteration RefNextIteration LoopCond Stack "
    "StackPush StackPop StackClose TensorArray TensorArrayGrad TensorArrayRead TensorArrayWrite TensorArrayGather "
    "TensorArrayScatter TensorArraySize TensorArraySplit TensorArrayConcat TensorArrayClose TensorListReserve "
    "TensorListGetItem TensorListSetItem TensorListStack TensorListFromTensor TensorListPushBack TensorListPopBack "
    "TensorListElementShape TensorListLength While StatelessWhile",
    # Next to nothing: shapes, constants, calls, what only orders or feeds others.
    CONTROL: "Const HostConst Placeholder PlaceholderWithDefault NoOp ControlTrigger Assert Shape ShapeN Size Rank "
    "Range LinSpace InvertPermutation BroadcastGradientArgs BroadcastArgs ConcatOffset If StatelessIf Case "
    "StatelessCase PartitionedCall StatefulPartitionedCall SymbolicGradient IteratorGetNext Iterator OneShotIterator "
    "IteratorToStringHandle MakeIterator QueueDequeue QueueDequeueMany QueueEnqueue QueueEnqueueMany FIFOQueue "
    "QueueSize Print ScalarSummary HistogramSummary MergeSummary Send Recv HostSend HostRecv Arg Retval Timestamp",
}
CLASSES: tuple[str, ...] = (*_TABLE, OTHER)
"""In the order of the feature columns."""

COUNTED = (CONVOLUTION, CONVOLUTION_GRADIENT, DEPTHWISE, MATMUL)
"""Classes whose cost follows their FLOPs."""

_CLASS_OF = {op: name for name, ops in _TABLE.items() for op in ops.split()}

# Classes of ops that the table lacks, by the first pattern that matches the name.
_SIGNS: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), name)
    for pattern, name in (
        (r"Depthwise", DEPTHWISE),
        (r"Conv\dD.*Backprop|Conv.*Grad", CONVOLUTION_GRADIENT),
        (r"Conv\dD", CONVOLUTION),
        (r"MatMul|Gemm|RNN|LSTM|GRU", MATMUL),
        (r"Norm", NORMALISATION),
        (r"Pool|Resize", POOLING),
        (r"Apply|Accumulator|Assign|Variable|Scatter.*Update", UPDATE),
        (r"Gather|Scatter|Segment|Embedding|Lookup|HashTable|Sparse", LOOKUP),
        (r"^(Tensor(Array|List)|Stack|While)", LOOP),
        (r"Dataset|Iterator|Queue|Summary|Save|Restore|Filename|String|Const|Shape", CONTROL),
        (r"Concat|Split|Slice|Pad|Tile|Transpose|Space|Reverse", MOVEMENT),
        (r"Softmax|Reduce|Sum|Mean|CrossEntropy", REDUCTION),
        (r"Random|Normal|Uniform|Relu|Sigmoid|Tanh|Grad$", ELEMENTWISE),
    )
)
_VERSION = re.compile(r"V\d+$")


@lru_cache(maxsize=4096)
def class_of(op: str) -> str:
    """The class of an op type: by the table, ignoring its version and `Resource`; else by the patterns."""
    stem = _VERSION.sub("", op).removeprefix("_")
    for name in (op, stem, stem.removeprefix("Resource"), stem.removesuffix("Ref")):
        if name in _CLASS_OF:
            return _CLASS_OF[name]
    return next((name for sign, name in _SIGNS if sign.search(stem)), OTHER)


def class_numbers(ops: Sequence[str]) -> NDArray[np.int64]:
    """The position in CLASSES of the class of each op."""
    position = {op: CLASSES.index(class_of(op)) for op in set(ops)}
    return np.array([position[op] for op in ops], dtype=np.int64)
