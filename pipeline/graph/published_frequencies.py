"""The op-type frequencies that the authors of Driple published: 159 op types of TensorFlow 1.

From github.com/gsyang33/Driple, dataset/dataset_builder/features/node_frequency.csv (MIT by its CITATION.cff). It lacks
op types of today's TensorFlow; see `op_frequencies.py` for those.
"""

from __future__ import annotations

_TABLE = """
Add=0.016373439 AddN=0.018612096 All=0.000548664 ApplyAdam=0.00341391 ArgMax=4.40326e-05 Assert=0.000482074
Assign=0.072278109 AssignAdd=0.00040681 AssignSub=0.007352349 BatchMatMul=0.001546326 BiasAdd=0.003704173
BiasAddGrad=0.003704173 BroadcastGradientArgs=0.009108753 Cast=0.003460013 ConcatOffset=0.001175832
ConcatV2=0.004404421 Const=0.211574788 ControlTrigger=0.000153767 Conv2D=0.005924158
Conv2DBackpropFilter=0.005924158 Conv2DBackpropInput=0.005924158 Cos=5.0275e-05 DynamicStitch=0.000871173
Enter=0.026597047 Equal=0.00102128 Exit=0.003547221 Exp=2.51375e-05 ExpandDims=0.004374365 Fill=0.030120983
FilterDataset=5.66014e-05 Floor=0.001220325 FloorDiv=0.001688141 FloorMod=0.002047005 Gather=0.001052432
GreaterEqual=0.000781366 GroupByWindowDataset=5.66014e-05 HashTableV2=0.000113203 Identity=0.081198306
InitializeTableFromTextFileV2=0.000113203 InvertPermutation=0.001275491 IsVariableInitialized=0.071988522
Iterator=5.66014e-05 IteratorGetNext=5.66014e-05 IteratorToStringHandle=5.66014e-05 L2Loss=0.019734898
Less=0.000584162 ListDiff=0.000125732 LogicalAnd=0.000359312 LogicalNot=0.000675281 LogicalOr=4.40326e-05
LogSoftmax=1.25687e-05 LoopCond=0.000219469 MakeIterator=5.66014e-05 MatMul=0.003242138 MatrixBandPart=2.51375e-05
Max=6.57021e-05 Maximum=0.001766412 Mean=0.001420598 Merge=0.004381685 MergeSummary=5.66014e-05
MergeV2Checkpoints=5.66014e-05 Min=6.57021e-05 Minimum=0.000122303 Mul=0.051939598 Neg=0.002513817
NextIteration=0.003547221 NoOp=0.020015869 OneHot=1.25687e-05 Pack=0.003965263 Pad=0.000194272
ParallelMapDataset=5.66014e-05 Pow=8.52504e-05 PrefetchDataset=5.66014e-05 PreventGradient=0.000281039
Prod=0.002447478 RandomUniform=0.00724732 Range=0.002129773 Rank=3.77199e-05 RealDiv=0.008698225
RefSwitch=5.66014e-05 Relu=0.005572138 ReluGrad=0.005572138 RepeatDataset=5.66014e-05 Reshape=0.032288052
RestoreV2=0.000350209 ReverseSequence=8.66781e-05 Rsqrt=0.0004022 RsqrtGrad=0.0004022 SaveV2=0.000350209
ScalarSummary=0.000191941 ScatterAdd=0.00017613 ScatterSub=2.51375e-05 ScatterUpdate=5.0275e-05 Select=0.002866762
Shape=0.026273257 ShapeN=0.006606971 ShardedFilename=0.000113203 ShuffleDataset=5.66014e-05 Sigmoid=0.001098656
SigmoidGrad=0.001098656 Sin=5.0275e-05 Size=0.000157235 Slice=0.003069346 Softmax=0.000245172
SoftmaxCrossEntropyWithLogits=1.25687e-05 SparseSoftmaxCrossEntropyWithLogits=0.000281039 Split=0.000971933
Sqrt=0.000371072 Square=2.51375e-05 SquaredDifference=0.0004022 Squeeze=0.001504817 StackPopV2=0.010100095
StackPushV2=0.010100095 StackV2=0.010100095 StopGradient=0.000408491 StridedSlice=0.004954259
StridedSliceGrad=4.40326e-05 StringJoin=5.66014e-05 Sub=0.017045956 Sum=0.020250498 Switch=0.007279252
Tanh=0.000698973 TanhGrad=0.000698973 TensorArrayGatherV3=0.000307535 TensorArrayGradV3=0.000482972
TensorArrayReadV3=0.000263502 TensorArrayScatterV3=0.000219469 TensorArraySizeV3=0.0001978 TensorArrayV3=0.000307535
TensorArrayWriteV3=0.000351567 TextLineDataset=0.000113203 Tile=0.001718379 Transpose=0.002717521 Unique=0.000113203
UnsortedSegmentSum=0.000113203 VariableV2=0.036378325 Where=0.000587215 ZerosLike=0.015851045 ZipDataset=5.66014e-05
ApplyGradientDescent=0.012245585 ApplyMomentum=0.001120312 ApplyRMSProp=0.000915551 AvgPool=0.000149758
AvgPoolGrad=0.000149758 FIFOQueueV2=0.000474013 FusedBatchNorm=0.00330052 FusedBatchNormGrad=0.00330052
FusedBatchNormGradV2=0.000331622 FusedBatchNormV2=0.000331622 Greater=0.000421391 LessEqual=0.000249892
LRN=7.68049e-05 LRNGrad=7.68049e-05 MaxPool=0.000680113 MaxPoolGrad=0.000680113 QueueDequeueManyV2=0.000237006
QueueEnqueueV2=0.000237006 RandomUniformInt=0.000474013 TruncatedNormal=0.001517547
"""


def published_frequency() -> dict[str, float]:
    """Op type to frequency; they add up to 1."""
    pairs = (entry.split("=") for entry in _TABLE.split())
    return {op: float(share) for op, share in pairs}
