"""Transformers on token sequences: Vaswani et al. 2017 (arXiv 1706.03762) and two variants, and GPT-2.

Sizes are those of OpenNMT-tf's catalogue. As in the paper, one matrix embeds both languages and makes the logits.
Layers normalise their input (not their output), which learns without a warm-up of the rate.

Positions of all sentences are the rows of one matrix [batch * length, units] and are split up only inside attention:
a dense layer on three dimensions costs a dozen nodes of shape arithmetic each time, in a graph that is looked at.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from driple.workloads.models.base import Hyper, Inputs, Tensor, dims, function, layers

PAD = 0
"""Padding token."""
RELATIVE_REACH = 20
"""Distances beyond this count as this (Shaw et al. 2018, arXiv 1803.02155)."""
POSITIONS = 1024
"""Length of GPT-2's table of positions."""
_MASKED = -1e9


def translate(
    inputs: Inputs, hyper: Hyper, *, units: int, heads: int, dropout: float = 0.1, decoder: str = "self"
) -> Tensor:
    """Encoder and decoder of six layers each, over `source` [batch, length] and `target` [batch, length + 1].

    The decoder applies to its own past: `self` attention, `relative` positions in every attention to itself, or the
    cumulative `average` (Zhang et al. 2018, arXiv 1805.00631).
    """
    units = hyper.channels(units, 2 * heads)
    table = SharedEmbedding(hyper.classes, units)
    parts = _Parts(hyper.batch_size, units, heads, dropout, relative=decoder == "relative")
    padding = function(padding_bias, inputs["source"])
    shifted = function(lambda ids: ids[:, :-1], inputs["target"])

    def embed(ids: Tensor) -> Tensor:
        x = table(ids)
        x = x if decoder == "relative" else function(_add_waves, x)
        return layers.Dropout(dropout)(parts.flat(x))

    x = embed(inputs["source"])
    for _ in range(6):
        x = parts.add(x, lambda y: parts.attend(y, y, padding, to_itself=True))
        x = parts.add(x, lambda y: parts.inner(y, "relu"))
    memory = layers.LayerNormalization()(x)

    x = embed(shifted)
    for _ in range(6):
        x = parts.add(x, parts.average if decoder == "average" else lambda y: parts.attend(y, y, causal=True))
        x = parts.add(x, lambda y: parts.attend(y, memory, padding))
        x = parts.add(x, lambda y: parts.inner(y, "relu"))
    return parts.logits(table, x)


def gpt2(inputs: Inputs, hyper: Hyper, *, units: int = 768, heads: int = 12, depth: int = 12) -> Tensor:
    """GPT-2 (Radford et al. 2019): decoder only, with learned positions. Reads `target`, predicts the next token."""
    units = hyper.channels(units, 2 * heads)
    table = SharedEmbedding(hyper.classes, units)
    parts = _Parts(hyper.batch_size, units, heads, dropout=0.1)
    x = Positions(POSITIONS, units)(table(function(lambda ids: ids[:, :-1], inputs["target"]), scale=False))
    x = layers.Dropout(0.1)(parts.flat(x))
    for _ in range(depth):
        x = parts.add(x, lambda y: parts.attend(y, y, causal=True))
        x = parts.add(x, lambda y: parts.inner(y, "gelu"))
    return parts.logits(table, x)


class SharedEmbedding(layers.Layer):  # type: ignore[misc]
    """One matrix both ways: ids to vectors, and vectors to logits."""

    def __init__(self, vocabulary: int, units: int) -> None:
        super().__init__(dtype="float32")
        self.vocabulary = vocabulary
        self.units = units

    def build(self, _: Any) -> None:
        start = tf.compat.v1.random_normal_initializer(stddev=self.units**-0.5)
        self.table = self.add_weight("table", shape=(self.vocabulary, self.units), initializer=start)
        self.built = True

    def call(self, x: Tensor, unembed: bool = False, scale: bool = True) -> Tensor:
        """Ids [batch, length] to vectors, or with `unembed` rows of vectors to rows of logits."""
        if not unembed:
            # The lookup happens beside the table, so a worker fetches its rows and not the whole matrix.
            rows = tf.nn.embedding_lookup(self.table, x)
            return rows * self.units**0.5 if scale else rows
        return tf.matmul(x, self.table, transpose_b=True)


class Positions(layers.Layer):  # type: ignore[misc]
    """Adds a learned vector for each position."""

    def __init__(self, positions: int, units: int) -> None:
        super().__init__(dtype="float32")
        self.table_shape = (positions, units)

    def build(self, _: Any) -> None:
        start = tf.compat.v1.random_normal_initializer(stddev=0.02)
        self.table = self.add_weight("positions", shape=self.table_shape, initializer=start)
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        """[batch, length, units] to the same."""
        return x + self.table[: dims(x)[1]]


class RelativeTable(layers.Layer):  # type: ignore[misc]
    """A learned vector for each distance between two positions, as [length, length, units of a head]."""

    def __init__(self, units: int) -> None:
        super().__init__(dtype="float32")
        self.units = units

    def build(self, _: Any) -> None:
        self.table = self.add_weight("distances", shape=(2 * RELATIVE_REACH + 1, self.units))
        self.built = True

    def call(self, x: Tensor) -> Tensor:
        """Takes anything of [batch, heads, length, ...]; only the length matters."""
        place = tf.range(dims(x)[2])
        distance = tf.clip_by_value(place[None, :] - place[:, None], -RELATIVE_REACH, RELATIVE_REACH)
        return tf.nn.embedding_lookup(self.table, distance + RELATIVE_REACH)


class _Parts:
    """The sub-layers of one transformer: all have the same sizes."""

    def __init__(self, batch_size: int, units: int, heads: int, dropout: float, *, relative: bool = False) -> None:
        self.batch_size = batch_size
        self.units = units
        self.heads = heads
        self.dropout = dropout
        self.relative = relative

    def flat(self, x: Tensor) -> Tensor:
        """[batch, length, units] to rows."""
        return function(lambda y: tf.reshape(y, [-1, self.units]), x)

    def logits(self, table: SharedEmbedding, x: Tensor) -> Tensor:
        """Rows to [batch, length, vocabulary]."""
        rows = table(layers.LayerNormalization()(x), unembed=True)
        return function(lambda y: tf.reshape(y, [self.batch_size, -1, table.vocabulary]), rows)

    def add(self, x: Tensor, part: Callable[[Tensor], Tensor]) -> Tensor:
        """The residual connection round a part: x + part(norm(x))."""
        return layers.Add()([x, layers.Dropout(self.dropout)(part(layers.LayerNormalization()(x)))])

    def inner(self, x: Tensor, activation: str) -> Tensor:
        return layers.Dense(self.units)(layers.Dense(4 * self.units, activation=activation)(x))

    def attend(
        self, x: Tensor, memory: Tensor, bias: Tensor | None = None, *, causal: bool = False, to_itself: bool = False
    ) -> Tensor:
        query, key, value = (self._split(layers.Dense(self.units)(y)) for y in (x, memory, memory))
        extra = [] if bias is None else [bias]
        if self.relative and (causal or to_itself):
            tables = [RelativeTable(self.units // self.heads)(key) for _ in range(2)]
        else:
            tables = []
        given = [query, key, *extra, *tables[:1]]
        scores = function(lambda tensors: _scores(tensors, causal=causal, relative=bool(tables)), given)
        weights = layers.Dropout(self.dropout)(scores)
        joined = function(lambda tensors: _join(tensors, self.units), [weights, value, *tables[1:]])
        return layers.Dense(self.units)(joined)

    def average(self, x: Tensor) -> Tensor:
        """The mean of all positions so far, mixed with the present one by gates."""
        shape = [self.batch_size, -1, self.units]
        mean = self.inner(self.flat(function(lambda y: _cumulative_mean(tf.reshape(y, shape)), x)), "relu")
        gates = layers.Dense(2 * self.units, activation="sigmoid")(layers.Concatenate()([x, mean]))
        return function(_gate, [gates, x, mean])

    def _split(self, x: Tensor) -> Tensor:
        shape = [self.batch_size, -1, self.heads, self.units // self.heads]
        return function(lambda y: tf.transpose(tf.reshape(y, shape), [0, 2, 1, 3]), x)


def padding_bias(ids: Tensor) -> Tensor:
    """The mask that is added to attention scores [batch, heads, length, length of source]: hides padding tokens."""
    return tf.cast(tf.equal(ids, PAD), tf.float32)[:, None, None, :] * _MASKED


def _scores(given: list[Tensor], *, causal: bool, relative: bool) -> Tensor:
    query, key, *rest = given
    query = query * dims(query)[-1] ** -0.5
    scores = tf.matmul(query, key, transpose_b=True)
    if relative:
        scores += _by_position(query, rest.pop(), transpose=True)
    for bias in rest:
        scores += bias
    if causal:
        place = tf.range(dims(scores)[-1])
        scores += tf.cast(place[None, :] > place[:, None], tf.float32) * _MASKED
    return tf.nn.softmax(scores)


def _join(given: list[Tensor], units: int) -> Tensor:
    weights, value, *tables = given
    x = tf.matmul(weights, value)
    if tables:
        x += _by_position(weights, tables[0], transpose=False)
    return tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [-1, units])


def _by_position(x: Tensor, table: Tensor, *, transpose: bool) -> Tensor:
    """Each position of x [batch, heads, length, n] times its own matrix of table [length, length, units]."""
    batch, heads, length, last = dims(x)
    rows = tf.reshape(tf.transpose(x, [2, 0, 1, 3]), [length, batch * heads, last])
    product = tf.matmul(rows, table, transpose_b=transpose)
    return tf.transpose(tf.reshape(product, [length, batch, heads, dims(product)[-1]]), [1, 2, 0, 3])


def _cumulative_mean(x: Tensor) -> Tensor:
    return tf.cumsum(x, axis=1) / tf.range(1.0, dims(x)[1] + 1.0)[:, None]


def _gate(given: list[Tensor]) -> Tensor:
    gates, x, mean = given
    keep, take = tf.split(gates, 2, axis=-1)
    return keep * x + take * mean


def _add_waves(x: Tensor) -> Tensor:
    length, units = dims(x)[1:]
    rate = tf.exp(tf.range(units // 2, dtype=tf.float32) * (-math.log(10000.0) / (units // 2)))
    angle = tf.range(length, dtype=tf.float32)[:, None] * rate[None, :]
    return x + tf.concat([tf.sin(angle), tf.cos(angle)], axis=-1)
