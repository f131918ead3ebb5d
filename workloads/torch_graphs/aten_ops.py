"""The op type of each ATen op of PyTorch. Inspectors and the simulator know the types of TensorFlow.

An in-place op (`add_`) counts as the op. What the table lacks keeps its own name in the spelling of TensorFlow:
`grid_sampler_2d_backward` is GridSampler2dGrad. The classes of ops then go by its name (pipeline/graph/op_classes.py).

Views of PyTorch move no bytes, so they are ops of the class `alias`, whatever TensorFlow does in their place: a
transposition is an Identity, and a Transpose only where it is made contiguous.
"""

from __future__ import annotations

PASS = "pass"
"""The same tensor: not an op."""
NOTHING = "nothing"
"""Memory without values: not an op, and no input of others."""

# Ops that torch_graph.py writes as several, under the type of the first.
SPLIT = {
    "convolution": "Conv2D",
    "convolution_backward": "Conv2DBackpropInput",
    "addmm": "MatMul",
    "baddbmm": "BatchMatMulV2",
    "native_batch_norm": "FusedBatchNormV3",
    "cudnn_batch_norm": "FusedBatchNormV3",
    "miopen_batch_norm": "FusedBatchNormV3",
    "_native_batch_norm_legit": "FusedBatchNormV3",
    "_batch_norm_with_update": "FusedBatchNormV3",
}

_TABLE = {
    PASS: "detach alias lift_fresh lift_fresh_copy lift _conj resolve_conj resolve_neg",
    NOTHING: "empty empty_like empty_strided new_empty new_empty_strided empty_permuted",
    # Matrix products.
    "MatMul": "mm mv dot vdot addmv addr ger outer linear",
    "BatchMatMulV2": "bmm",
    "Einsum": "einsum",
    "CudnnRNNV3": "mkldnn_rnn_layer _cudnn_rnn lstm gru rnn_tanh rnn_relu miopen_rnn _thnn_fused_lstm_cell",
    "CudnnRNNBackpropV3": "mkldnn_rnn_layer_backward _cudnn_rnn_backward _thnn_fused_lstm_cell_backward_impl",
    # Normalisation.
    "FusedBatchNormV3": "native_layer_norm native_group_norm _fused_rms_norm batch_norm_stats batch_norm_elemt",
    "FusedBatchNormGradV3": "native_batch_norm_backward native_layer_norm_backward native_group_norm_backward "
    "cudnn_batch_norm_backward miopen_batch_norm_backward batch_norm_backward _fused_rms_norm_backward",
    # Pooling and resizing.
    "MaxPool": "max_pool2d_with_indices max_pool2d adaptive_max_pool2d max_pool1d_with_indices fractional_max_pool2d",
    "MaxPoolGrad": "max_pool2d_with_indices_backward adaptive_max_pool2d_backward max_pool2d_backward",
    "MaxPool3D": "max_pool3d_with_indices adaptive_max_pool3d",
    "MaxPool3DGrad": "max_pool3d_with_indices_backward adaptive_max_pool3d_backward",
    "AvgPool": "avg_pool2d _adaptive_avg_pool2d adaptive_avg_pool2d avg_pool1d adaptive_avg_pool1d",
    "AvgPoolGrad": "avg_pool2d_backward _adaptive_avg_pool2d_backward",
    "AvgPool3D": "avg_pool3d _adaptive_avg_pool3d",
    "AvgPool3DGrad": "avg_pool3d_backward _adaptive_avg_pool3d_backward",
    "ResizeNearestNeighbor": "upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact2d",
    "ResizeNearestNeighborGrad": "upsample_nearest1d_backward upsample_nearest2d_backward upsample_nearest3d_backward "
    "_upsample_nearest_exact2d_backward",
    "ResizeBilinear": "upsample_bilinear2d upsample_bicubic2d upsample_linear1d upsample_trilinear3d "
    "_upsample_bilinear2d_aa _upsample_bicubic2d_aa",
    "ResizeBilinearGrad": "upsample_bilinear2d_backward upsample_bicubic2d_backward upsample_linear1d_backward "
    "upsample_trilinear3d_backward _upsample_bilinear2d_aa_backward _upsample_bicubic2d_aa_backward",
    # Elementwise.
    "AddV2": "add addcmul addcdiv lerp",
    "Sub": "sub rsub",
    "Mul": "mul _softmax_backward_data native_dropout_backward",
    "RealDiv": "div true_divide nll_loss_backward nll_loss2d_backward",
    "FloorDiv": "floor_divide",
    "FloorMod": "remainder fmod",
    "Neg": "neg",
    "Abs": "abs",
    "Sign": "sign sgn",
    "Reciprocal": "reciprocal",
    "Square": "square",
    "Sqrt": "sqrt",
    "Rsqrt": "rsqrt",
    "Pow": "pow",
    "Exp": "exp exp2",
    "Expm1": "expm1",
    "Log": "log log2 log10",
    "Log1p": "log1p",
    "Sin": "sin",
    "Cos": "cos",
    "Tan": "tan",
    "Atan2": "atan atan2 asin acos",
    "Erf": "erf erfinv",
    "Erfc": "erfc",
    "Floor": "floor trunc",
    "Ceil": "ceil",
    "Round": "round",
    "Maximum": "maximum clamp_min fmax",
    "Minimum": "minimum clamp_max fmin",
    "ClipByValue": "clamp",
    "Relu": "relu",
    "ReluGrad": "threshold_backward",
    "Relu6": "hardtanh hardswish hardsigmoid relu6",
    "Relu6Grad": "hardtanh_backward hardswish_backward hardsigmoid_backward",
    "LeakyRelu": "leaky_relu _prelu_kernel prelu rrelu_with_noise",
    "LeakyReluGrad": "leaky_relu_backward _prelu_kernel_backward",
    "Elu": "elu celu selu",
    "EluGrad": "elu_backward",
    "Gelu": "gelu",
    "GeluGrad": "gelu_backward",
    "Sigmoid": "sigmoid silu mish log_sigmoid_forward glu",
    "SigmoidGrad": "sigmoid_backward silu_backward mish_backward log_sigmoid_backward glu_backward",
    "Tanh": "tanh",
    "TanhGrad": "tanh_backward",
    "Softplus": "softplus",
    "SoftplusGrad": "softplus_backward",
    "SquaredDifference": "mse_loss_backward smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward",
    "Cast": "_to_copy to type_as",
    "SelectV2": "where masked_fill masked_scatter",
    "Equal": "eq isnan isinf isfinite",
    "NotEqual": "ne",
    "Less": "lt",
    "LessEqual": "le",
    "Greater": "gt",
    "GreaterEqual": "ge",
    "LogicalAnd": "logical_and bitwise_and __and__",
    "LogicalOr": "logical_or bitwise_or logical_xor bitwise_xor __or__",
    "LogicalNot": "logical_not bitwise_not",
    "MatrixBandPart": "tril triu",
    "Cumsum": "cumsum cumprod logcumsumexp",
    "RandomUniform": "rand rand_like uniform bernoulli native_dropout multinomial",
    "RandomStandardNormal": "randn randn_like normal normal_functional",
    "RandomUniformInt": "randint randint_like randperm",
    # Reductions.
    "Sum": "sum nansum count_nonzero",
    "Mean": "mean var var_mean std std_mean mse_loss smooth_l1_loss huber_loss binary_cross_entropy "
    "binary_cross_entropy_with_logits l1_loss kl_div",
    "Max": "max amax cummax",
    "Min": "min amin cummin",
    "Prod": "prod",
    "Any": "any",
    "All": "all",
    "ArgMax": "argmax",
    "ArgMin": "argmin",
    "EuclideanNorm": "norm linalg_vector_norm",
    "LogSumExp": "logsumexp",
    "Softmax": "_softmax _safe_softmax",
    "LogSoftmax": "_log_softmax",
    "LogSoftmaxGrad": "_log_softmax_backward_data",
    "SparseSoftmaxCrossEntropyWithLogits": "nll_loss_forward nll_loss2d_forward nll_loss cross_entropy_loss",
    "TopKV2": "topk sort kthvalue median",
    # Bytes are copied.
    "Transpose": "clone contiguous",
    "Copy": "copy _copy_from",
    "ConcatV2": "cat",
    "Pack": "stack",
    "PadV2": "constant_pad_nd pad reflection_pad1d reflection_pad2d replication_pad1d replication_pad2d",
    "MirrorPadGrad": "reflection_pad1d_backward reflection_pad2d_backward replication_pad2d_backward",
    "StridedSliceGrad": "slice_backward select_backward slice_scatter select_scatter as_strided_scatter",
    "Tile": "repeat repeat_interleave",
    "ReverseV2": "flip",
    "Roll": "roll",
    "Fill": "full full_like fill ones ones_like new_ones new_full masked_select",
    "ZerosLike": "zeros zeros_like new_zeros zero",
    "OneHot": "one_hot",
    "SpaceToDepth": "pixel_unshuffle im2col unfold_backward",
    "DepthToSpace": "pixel_shuffle col2im channel_shuffle",
    # Rows by their numbers.
    "GatherV2": "embedding index_select index take _embedding_bag",
    "GatherNd": "gather",
    "UnsortedSegmentSum": "embedding_dense_backward index_add scatter_add index_put _index_put_impl "
    "_embedding_bag_dense_backward",
    "TensorScatterUpdate": "scatter index_copy index_fill put",
    "Unique": "_unique2 unique_dim unique_consecutive",
    "Where": "nonzero argwhere",
    # The same bytes under another shape.
    "Reshape": "view _unsafe_view reshape flatten unflatten _reshape_alias _reshape_copy",
    "ExpandDims": "unsqueeze",
    "Squeeze": "squeeze",
    "Identity": "t transpose permute movedim numpy_T slice select narrow split split_with_sizes chunk unbind expand "
    "expand_as as_strided unfold diagonal view_as_real view_as_complex real imag",
    # Next to nothing.
    "Range": "arange linspace",
    "Const": "scalar_tensor",
}

ATEN_OPS: dict[str, str] = {**SPLIT, **{aten: op for op, names in _TABLE.items() for aten in names.split()}}
"""Op type by the name of an ATen op without namespace and overload."""


def stem(name: str) -> str:
    """The name of an ATen op, without the mark of an in-place op."""
    return name if name.endswith("__") else name.rstrip("_")


def op_type(name: str) -> str:
    """The op type of an ATen op; its own name if the table lacks it."""
    return ATEN_OPS.get(stem(name)) or _own_name(stem(name))


def _own_name(name: str) -> str:
    backward = name.endswith("_backward")
    words = name.removesuffix("_backward").strip("_").split("_")
    return "".join(word[:1].upper() + word[1:] for word in words) + ("Grad" if backward else "")
