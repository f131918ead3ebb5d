"""A graph encoder after GHN-2 (Knyazev et al., NeurIPS 2021, github.com/facebookresearch/ppuda).

    message to v = sum over u with an edge to v of MLP(h_u) + sum over u with a path to v of MLP'(h_u) / length
    h_v          = GRU(message, h_v)                        along the edges, then against them

GHN-2 updates nodes one after another in topological order, once in each direction. Here all nodes are updated at once,
in five rounds of both directions, which is the faster order for batches of groups. The embedding of a graph is the mean
of its nodes, as PredictDDL and GHN-2's prediction of properties use it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from driple.inspector.data.array_types import FloatArray
from time_contest.encoder_graphs import FEATURES, EncoderGraph

HIDDEN = 32
ROUNDS = 5
BATCH = 32


class Batch(NamedTuple):
    """Graphs side by side, with empty nodes up to the largest."""

    features: Tensor
    """[B, n, FEATURES]"""
    distances: Tensor
    """[B, n, n]"""
    real: Tensor
    """[B, n]: whether a node exists."""


def batch_of(graphs: Sequence[EncoderGraph]) -> Batch:
    """Pads graphs to the size of the largest."""
    most = max(len(one.features) for one in graphs)
    features = torch.zeros(len(graphs), most, FEATURES)
    distances = torch.zeros(len(graphs), most, most)
    real = torch.zeros(len(graphs), most, dtype=torch.bool)
    for number, one in enumerate(graphs):
        count = len(one.features)
        features[number, :count] = torch.as_tensor(one.features, dtype=torch.float32)
        distances[number, :count, :count] = torch.as_tensor(one.distances, dtype=torch.float32)
        real[number, :count] = True
    return Batch(features, distances, real)


class GraphEncoder(nn.Module):  # type: ignore[misc]  # torch has no types here
    """Nodes to states, and what training without labels needs: a decoder of features and a projection of graphs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(FEATURES))
        self.register_buffer("unit", torch.ones(FEATURES))
        self.masked = nn.Parameter(torch.zeros(HIDDEN))
        self.enter = _two_layers(FEATURES, HIDDEN, HIDDEN)
        self.edge = _two_layers(HIDDEN, HIDDEN, HIDDEN)
        self.virtual = _two_layers(HIDDEN, HIDDEN // 2, HIDDEN)
        self.cell = nn.GRUCell(HIDDEN, HIDDEN)
        self.norm = nn.LayerNorm(HIDDEN)
        self.decoder = _two_layers(HIDDEN, 2 * HIDDEN, FEATURES)
        self.projection = _two_layers(HIDDEN, HIDDEN, HIDDEN)

    def scaled(self, batch: Batch) -> Tensor:
        """[B, n, FEATURES] in standard deviations."""
        return (batch.features - self.mean) / self.unit

    def forward(self, batch: Batch, masked: Tensor | None = None) -> Tensor:
        """States [B, n, HIDDEN]; features of masked nodes [B, n] are hidden."""
        state = self.enter(self.scaled(batch))
        if masked is not None:
            state = torch.where(masked[..., None], self.masked, state)
        near = (batch.distances == 1).float()
        far = torch.where(batch.distances > 0, 1 / batch.distances.clamp(min=1), torch.zeros_like(batch.distances))
        shape = state.shape
        for _ in range(ROUNDS):
            # [B, from, to]: messages go along the edges, then against them.
            for one, every in ((near.transpose(1, 2), far.transpose(1, 2)), (near, far)):
                message = one @ self.edge(state) + every @ self.virtual(state)
                state = self.cell(message.reshape(-1, HIDDEN), state.reshape(-1, HIDDEN)).reshape(shape)
        return self.norm(state)


def pooled(states: Tensor, real: Tensor) -> Tensor:
    """[B, HIDDEN]: mean over the nodes that exist."""
    weight = real[..., None].float()
    return (states * weight).sum(dim=1) / weight.sum(dim=1)


def embeddings(encoder: GraphEncoder, graphs: Sequence[EncoderGraph]) -> FloatArray:
    """[n, HIDDEN]"""
    encoder.eval()
    found = [np.zeros((0, HIDDEN))]
    with torch.no_grad():
        for begin in range(0, len(graphs), BATCH):
            batch = batch_of(graphs[begin : begin + BATCH])
            found.append(pooled(encoder(batch), batch.real).numpy())
    return np.concatenate(found).astype(np.float64)


def _two_layers(inputs: int, hidden: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
