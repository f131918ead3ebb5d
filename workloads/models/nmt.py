"""LSTM translators with Luong attention, in the three sizes of OpenNMT-tf 1's catalogue.

Unlike there, what was attended to is not fed back into the next step (Luong's input feeding): all of a target is
known in training, so the decoder runs in one loop a layer and attention is one product for all positions.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from driple.workloads.models.base import Hyper, Inputs, Tensor, dims, function, layers
from driple.workloads.models.transformer import padding_bias

DROPOUT = 0.3


def nmt(inputs: Inputs, hyper: Hyper, *, depth: int, units: int, both_ways: bool) -> Tensor:
    """Encoder and decoder of `depth` layers each, over `source` [batch, length] and `target` [batch, length + 1].

    An encoder that reads both ways gives half of the units to each direction.
    """
    units, embedded = hyper.channels(units, 2), hyper.channels(512)
    x = layers.Embedding(hyper.classes, embedded)(inputs["source"])
    states = []
    for _ in range(depth):
        x, state = _both_ways(x, units) if both_ways else _lstm(x, units)
        states.append(state)
    memory = x

    x = layers.Embedding(hyper.classes, embedded)(function(lambda ids: ids[:, :-1], inputs["target"]))
    for state in states:
        x, _ = _lstm(x, units, state)

    scores = function(_scores, [x, _rows(memory, units), function(padding_bias, inputs["source"])])
    context = function(lambda given: tf.matmul(*given), [scores, memory])
    mixed = _rows(layers.Concatenate()([context, x]), units, activation="tanh")
    return _rows(layers.Dropout(DROPOUT)(mixed), hyper.classes, use_bias=True)


def _lstm(x: Tensor, units: int, state: list[Tensor] | None = None, **options: Any) -> tuple[Tensor, list[Tensor]]:
    # RNN over a cell, not the LSTM layer, whose implementation depends on TensorFlow's mode and device.
    rnn = layers.RNN(layers.LSTMCell(units), return_sequences=True, return_state=True, **options)
    x, *state = rnn(x, initial_state=state)
    return layers.Dropout(DROPOUT)(x), state


def _both_ways(x: Tensor, units: int) -> tuple[Tensor, list[Tensor]]:
    ahead, ahead_state = _lstm(x, units // 2)
    back, back_state = _lstm(x, units // 2, go_backwards=True)
    back = function(lambda y: tf.reverse(y, [1]), back)
    state = [layers.Concatenate()(list(pair)) for pair in zip(ahead_state, back_state, strict=True)]
    return layers.Concatenate()([ahead, back]), state


def _scores(given: list[Tensor]) -> Tensor:
    query, key, bias = given
    return tf.nn.softmax(tf.matmul(query, key, transpose_b=True) + bias[:, 0])


def _rows(x: Tensor, units: int, *, use_bias: bool = False, activation: str | None = None) -> Tensor:
    """A dense layer on each position, as one matrix product."""
    batch, length, last = dims(x)
    y = layers.Dense(units, use_bias=use_bias, activation=activation)(function(lambda z: tf.reshape(z, [-1, last]), x))
    return function(lambda z: tf.reshape(z, [batch, length, units]), y)
