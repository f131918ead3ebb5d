"""The op types of ONNX ops and of their gradients, as TensorFlow names them.

ONNX files have the forward pass only. The gradient of an op with respect to each input that needs one is an op that
takes the gradient of the output and the input, and gives a tensor of the size of the input. Where the table says `=`,
the gradient passes unchanged. onnx_graph.py treats convolutions, products, batch normalisation and recurrent layers.

An op that is not here keeps its name, and its gradient is `<name>Grad`.
"""

from __future__ import annotations

from typing import NamedTuple

SAME = "="


class OpRule(NamedTuple):
    """The op types of an ONNX op and of its gradient."""

    forward: str
    gradient: str


_TABLE = """
    Identity Identity =
    Dropout Mul Mul
    Cast Cast Cast
    Reshape Reshape Reshape
    Flatten Reshape Reshape
    Squeeze Squeeze Reshape
    Unsqueeze ExpandDims Reshape
    Transpose Transpose Transpose
    Concat ConcatV2 Slice
    Split SplitV ConcatV2
    Slice StridedSlice StridedSliceGrad
    Pad PadV2 Slice
    Gather GatherV2 UnsortedSegmentSum
    GatherElements GatherNd ScatterNd
    GatherND GatherNd ScatterNd
    ScatterND TensorScatterUpdate GatherNd
    ScatterElements TensorScatterUpdate GatherNd
    Expand BroadcastTo Sum
    Tile Tile Sum
    DepthToSpace DepthToSpace SpaceToDepth
    SpaceToDepth SpaceToDepth DepthToSpace
    Where SelectV2 SelectV2
    OneHot OneHot Reshape
    ConstantOfShape Fill Fill
    Range Range Range
    Shape Shape Shape
    Size Size Size
    Trilu MatrixBandPart MatrixBandPart
    CumSum Cumsum Cumsum
    Add AddV2 =
    Sum AddN =
    Sub Sub =
    Mul Mul Mul
    Div RealDiv Mul
    Mod FloorMod Mul
    Pow Pow Mul
    Max Maximum Mul
    Min Minimum Mul
    Neg Neg Neg
    Abs Abs Mul
    Sign Sign Mul
    Sqrt Sqrt SqrtGrad
    Reciprocal Reciprocal ReciprocalGrad
    Exp Exp Mul
    Log Log Mul
    Sin Sin Mul
    Cos Cos Mul
    Erf Erf Mul
    Floor Floor Mul
    Ceil Ceil Mul
    Round Round Mul
    Clip ClipByValue Relu6Grad
    Relu Relu ReluGrad
    LeakyRelu LeakyRelu LeakyReluGrad
    PRelu LeakyRelu LeakyReluGrad
    ThresholdedRelu Relu ReluGrad
    Elu Elu EluGrad
    Celu Elu EluGrad
    Selu Selu SeluGrad
    Gelu Gelu GeluGrad
    Sigmoid Sigmoid SigmoidGrad
    HardSigmoid Relu6 Relu6Grad
    HardSwish Relu6 Relu6Grad
    Swish Sigmoid SigmoidGrad
    Mish Sigmoid SigmoidGrad
    Tanh Tanh TanhGrad
    Softplus Softplus SoftplusGrad
    Softsign Softsign SoftsignGrad
    Equal Equal Mul
    Greater Greater Mul
    GreaterOrEqual GreaterEqual Mul
    Less Less Mul
    LessOrEqual LessEqual Mul
    And LogicalAnd Mul
    Or LogicalOr Mul
    Not LogicalNot Mul
    IsNaN IsNan Mul
    RandomUniform RandomUniform Mul
    RandomUniformLike RandomUniform Mul
    RandomNormal RandomStandardNormal Mul
    RandomNormalLike RandomStandardNormal Mul
    Bernoulli RandomUniform Mul
    Softmax Softmax Mul
    LogSoftmax LogSoftmax LogSoftmaxGrad
    ReduceMean Mean Tile
    ReduceSum Sum Tile
    ReduceMax Max Mul
    ReduceMin Min Mul
    ReduceProd Prod Mul
    ReduceL2 EuclideanNorm Mul
    ReduceSumSquare Sum Mul
    ReduceLogSumExp LogSumExp Mul
    ArgMax ArgMax Mul
    ArgMin ArgMin Mul
    TopK TopKV2 UnsortedSegmentSum
    MaxPool MaxPool MaxPoolGrad
    AveragePool AvgPool AvgPoolGrad
    LpPool AvgPool AvgPoolGrad
    GlobalAveragePool Mean Tile
    GlobalMaxPool MaxPool MaxPoolGrad
    Resize ResizeNearestNeighbor ResizeNearestNeighborGrad
    Upsample ResizeNearestNeighbor ResizeNearestNeighborGrad
    LRN LRN LRNGrad
    LayerNormalization FusedBatchNormV3 FusedBatchNormGradV3
    SimplifiedLayerNormalization FusedBatchNormV3 FusedBatchNormGradV3
    SkipLayerNormalization FusedBatchNormV3 FusedBatchNormGradV3
    RMSNormalization FusedBatchNormV3 FusedBatchNormGradV3
    GroupNormalization FusedBatchNormV3 FusedBatchNormGradV3
    InstanceNormalization FusedBatchNormV3 FusedBatchNormGradV3
    LpNormalization L2Normalize Mul
    MeanVarianceNormalization FusedBatchNormV3 FusedBatchNormGradV3
    Einsum Einsum Einsum
"""

RULES: dict[str, OpRule] = {
    name: OpRule(forward, gradient) for name, forward, gradient in (line.split() for line in _TABLE.split("\n") if line)
}

IMAGES = frozenset(
    (
        *("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool", "GlobalAveragePool", "GlobalMaxPool"),
        *("BatchNormalization", "InstanceNormalization", "Resize", "Upsample", "LRN", "DepthToSpace", "SpaceToDepth"),
    )
)
"""Ops that take images and give images."""
REARRANGING = frozenset(
    (
        *("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Transpose", "Expand", "MatMul", "Gemm", "Einsum"),
        *("Gather", "Split", "Tile"),
    )
)
"""Ops that give the dimensions of a tensor another meaning."""


def rule_of(op: str) -> OpRule:
    """The rule of an ONNX op."""
    return RULES.get(op) or OpRule(op, f"{op}Grad")
