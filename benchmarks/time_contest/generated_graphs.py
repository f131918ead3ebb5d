"""Random architectures as op graphs of a training step, for an encoder that is trained without labels.

The same seed gives the same graph. A body of blocks of one kind (BODIES) with random depth, width, kernels and batch
size stands between an input and a classifier. Shapes are legal: GraphWriter refuses others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from driple.pipeline.graph.public import OpGraph
from time_contest.graph_writer import GraphWriter, Tensor

Body = Callable[[GraphWriter, np.random.Generator], Tensor]
"""Writes everything before the classifier and returns a matrix [rows, features]."""

MOST_BATCH = 256
_SIDES = (28, 32, 48, 64, 96, 139, 224)
_VOCABULARIES = (500, 2000, 8000, 32000)


def generated_graphs(count: int, seed: int = 0) -> Iterator[OpGraph]:
    """`count` architectures."""
    for number in range(count):
        yield generated_graph(seed * 1_000_003 + number)


def generated_graph(seed: int) -> OpGraph:
    """One architecture."""
    rng = np.random.default_rng(seed)
    writer = GraphWriter(_between(rng, 1, MOST_BATCH))
    body = list(BODIES.values())[int(rng.integers(len(BODIES)))](writer, rng)
    for _ in range(int(rng.integers(0, 3))):
        body = writer.elementwise("Relu", writer.dense(body, _between(rng, 16, 1024)), "ReluGrad")
    return writer.finish(writer.dense(body, _between(rng, 10, 1000)))


def _between(rng: np.random.Generator, least: int, most: int) -> int:
    """Uniform in the logarithm."""
    return int(round(np.exp(rng.uniform(np.log(least), np.log(most)))))


def _stem(writer: GraphWriter, rng: np.random.Generator) -> tuple[Tensor, int]:
    """An image after its first convolution, and the width of the network."""
    side, width = int(rng.choice(_SIDES)), _between(rng, 4, 64)
    image = writer.source(writer.batch_size, side, side, 3)
    first = _convolved(writer, image, width, int(rng.choice([3, 5, 7])), 2 if side > 64 else 1)
    return first, width


def _convolved(writer: GraphWriter, x: Tensor, channels: int, kernel: int, stride: int = 1) -> Tensor:
    return writer.elementwise("Relu", writer.norm(writer.convolution(x, channels, kernel, stride)), "ReluGrad")


def plain(writer: GraphWriter, rng: np.random.Generator) -> Tensor:
    """Convolutions one after another, as in VGG and AlexNet."""
    x, width = _stem(writer, rng)
    with_norm = rng.random() < 0.5
    for stage in range(int(rng.integers(1, 6))):
        for _ in range(int(rng.integers(1, 4))):
            made = writer.convolution(x, width * 2**stage, int(rng.choice([1, 3, 5])))
            x = writer.elementwise("Relu", writer.norm(made) if with_norm else made, "ReluGrad")
        x = writer.pool(x, "Max", 2)
    return writer.reshape(x, x.shape[0], x.shape[1] * x.shape[2] * x.shape[3])


def residual(writer: GraphWriter, rng: np.random.Generator) -> Tensor:
    """Blocks with a sum around them, as in ResNet; with or without a bottleneck."""
    x, width = _stem(writer, rng)
    bottleneck = rng.random() < 0.5
    depth = int(rng.integers(1, 9))
    for stage in range(int(rng.integers(2, 5))):
        for block in range(depth):
            stride = 2 if stage and not block else 1
            channels = width * 2**stage * (4 if bottleneck else 1)
            inner = x
            if bottleneck:
                inner = _convolved(writer, inner, channels // 4, 1)
                inner = _convolved(writer, inner, channels // 4, 3, stride)
                inner = writer.norm(writer.convolution(inner, channels, 1))
            else:
                inner = _convolved(writer, inner, channels, 3, stride)
                inner = writer.norm(writer.convolution(inner, channels, 3))
            same = inner.shape == x.shape
            shortcut = x if same else writer.norm(writer.convolution(x, channels, 1, stride))
            x = writer.elementwise("Relu", writer.add(inner, shortcut), "ReluGrad")
    return writer.mean(x)


def dense(writer: GraphWriter, rng: np.random.Generator) -> Tensor:
    """Every block takes the outputs of all before it, as in DenseNet."""
    x, _ = _stem(writer, rng)
    growth = _between(rng, 4, 32)
    for stage in range(int(rng.integers(1, 4))):
        if stage:
            x = writer.pool(_convolved(writer, x, max(1, x.shape[-1] // 2), 1), "Avg", 2)
        for _ in range(int(rng.integers(2, 13))):
            x = writer.concat([x, _convolved(writer, x, growth, 3)])
    return writer.mean(x)


def inception(writer: GraphWriter, rng: np.random.Generator) -> Tensor:
    """Branches with several kernels side by side, as in GoogLeNet."""
    x, width = _stem(writer, rng)
    for stage in range(int(rng.integers(1, 4))):
        for _ in range(int(rng.integers(1, 4))):
            branches = [_convolved(writer, x, width * (stage + 1), 1)]
            for kernel in rng.choice([3, 3, 5, 7], size=int(rng.integers(1, 4))):
                reduced = _convolved(writer, x, max(1, width // 2), 1)
                branches.append(_convolved(writer, reduced, width * (stage + 1), int(kernel)))
            branches.append(_convolved(writer, writer.pool(x, "Max", 1), max(1, width // 2), 1))
            x = writer.concat(branches)
        x = writer.pool(x, "Max", 2)
    return writer.mean(x)


def separable(writer: GraphWriter, rng: np.random.Generator) -> Tensor:
    """Depthwise and pointwise convolutions, as in MobileNet and Xception."""
    x, width = _stem(writer, rng)
    wider = int(rng.choice([1, 1, 4, 6]))
    for stage in range(int(rng.integers(2, 6))):
        for block in range(int(rng.integers(1, 5))):
            inner = _convolved(writer, x, x.shape[-1] * wider, 1) if wider > 1 else x
            inner = writer.norm(writer.convolution(inner, 0, 3, 1 if block else 2, depthwise=True))
            inner = writer.norm(
                writer.convolution(writer.elementwise("Relu6", inner, "Relu6Grad"), width * (stage + 1), 1)
            )
            x = writer.add(inner, x) if inner.shape == x.shape else inner
    return writer.mean(x)


def attention(writer: GraphWriter, rng: np.random.Generator) -> Tensor:
    """Layers of attention and a dense network, as in Transformer and GPT-2."""
    length, heads = _between(rng, 8, 64), int(rng.choice([1, 2, 4, 8]))
    width = heads * _between(rng, 8, 64)
    rows = writer.batch_size * length
    x = writer.lookup(int(rng.choice(_VOCABULARIES)), width, length)

    def split(part: Tensor) -> Tensor:
        folded = writer.reshape(part, writer.batch_size, length, heads, width // heads)
        return writer.transpose(folded, 0, 2, 1, 3)

    for _ in range(int(rng.integers(1, 7))):
        query, key, value = (split(writer.dense(writer.norm(x), width)) for _ in range(3))
        scores = writer.matmul(query, writer.transpose(key, 0, 1, 3, 2))
        mixed = writer.matmul(writer.elementwise("Softmax", scores, "Mul"), value)
        joined = writer.reshape(writer.transpose(mixed, 0, 2, 1, 3), rows, width)
        x = writer.add(writer.dense(joined, width), x)
        inner = writer.elementwise("Relu", writer.dense(writer.norm(x), 4 * width), "ReluGrad")
        x = writer.add(writer.dense(inner, width), x)
    return x


def recurrent(writer: GraphWriter, rng: np.random.Generator) -> Tensor:
    """Cells with gates in a loop, as in NMT: TensorFlow's graph has the body of the loop once."""
    length, width = _between(rng, 4, 50), _between(rng, 16, 512)
    x = writer.reshape(writer.lookup(int(rng.choice(_VOCABULARIES)), width, length), writer.batch_size, length * width)
    x = writer.dense(x, width)
    for _ in range(int(rng.integers(1, 5))):
        merged = writer.elementwise("Merge", writer.elementwise("Enter", x, "Exit"), "Switch")
        inner = writer.elementwise("TensorArrayReadV3", merged, "TensorArrayWriteV3")
        joined = writer.concat([inner, writer.elementwise("Switch", merged, "Merge")])
        gates = [writer.elementwise("Sigmoid", writer.dense(joined, width), "SigmoidGrad") for _ in range(3)]
        state = writer.elementwise("Tanh", writer.dense(joined, width), "TanhGrad")
        state = writer.add(writer.multiply(gates[0], state), writer.multiply(gates[1], merged))
        out = writer.multiply(gates[2], writer.elementwise("Tanh", state, "TanhGrad"))
        saved = writer.elementwise("StackPushV2", out, "StackPopV2")
        x = writer.elementwise("Exit", writer.elementwise("NextIteration", saved, "NextIteration"), "Enter")
    return x


def factors(writer: GraphWriter, rng: np.random.Generator) -> Tensor:
    """Two embeddings and dense layers, as in neural collaborative filtering."""
    width = _between(rng, 4, 128)
    users, items = (writer.lookup(int(rng.choice(_VOCABULARIES)), width, 1) for _ in range(2))
    x = writer.concat([writer.multiply(users, items), users, items])
    for _ in range(int(rng.integers(1, 5))):
        x = writer.elementwise("Relu", writer.dense(x, _between(rng, 8, 512)), "ReluGrad")
    return x


BODIES: dict[str, Body] = {
    "plain": plain,
    "residual": residual,
    "dense": dense,
    "inception": inception,
    "separable": separable,
    "attention": attention,
    "recurrent": recurrent,
    "factors": factors,
}
