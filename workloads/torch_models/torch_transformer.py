"""Transformers on token sequences (workloads/models/transformer.py): encoder and decoder, and GPT-2."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from driple.workloads.torch_models.torch_layers import Sizes, dense

PAD = 0
"""Padding token."""
POSITIONS = 1024
"""Length of GPT-2's table of positions."""


class Translate(nn.Module):  # type: ignore[misc]
    """Encoder and decoder of six layers each, over `source` [batch, length] and `target` [batch, length + 1]."""

    def __init__(self, sizes: Sizes, *, units: int, heads: int, dropout: float = 0.1) -> None:
        super().__init__()
        units = sizes.channels(units, 2 * heads)
        self.embed = SharedEmbedding(sizes.classes, units)
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.ModuleList(Layer(units, heads, dropout) for _ in range(6))
        self.memory_norm = _norm(units)
        self.decoder = nn.ModuleList(Layer(units, heads, dropout, with_memory=True) for _ in range(6))
        self.norm = _norm(units)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        source, target = batch["source"], batch["target"][:, :-1]
        seen = (source != PAD)[:, None, None, :]
        x = self._start(source)
        for layer in self.encoder:
            x = layer(x, mask=seen)
        memory, y = self.memory_norm(x), self._start(target)
        for layer in self.decoder:
            y = layer(y, causal=True, memory=memory, memory_mask=seen)
        return self.embed.logits(self.norm(y))

    def _start(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.embed(ids) * self.embed.table.shape[1] ** 0.5
        started: torch.Tensor = self.drop(x + _waves(x.shape[1], x.shape[2], x.device))
        return started


class Gpt2(nn.Module):  # type: ignore[misc]
    """GPT-2 (Radford et al. 2019): decoder only, with learned positions. Reads `target`, predicts the next token."""

    def __init__(self, sizes: Sizes, *, units: int = 768, heads: int = 12, depth: int = 12) -> None:
        super().__init__()
        units = sizes.channels(units, 2 * heads)
        self.embed = SharedEmbedding(sizes.classes, units)
        self.positions = nn.Parameter(torch.randn(POSITIONS, units) * 0.02)
        self.drop = nn.Dropout(0.1)
        self.layers = nn.ModuleList(Layer(units, heads, 0.1, activation=functional.gelu) for _ in range(depth))
        self.norm = _norm(units)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        ids = batch["target"][:, :-1]
        x = self.drop(self.embed(ids) + self.positions[: ids.shape[1]])
        for layer in self.layers:
            x = layer(x, causal=True)
        return self.embed.logits(self.norm(x))


class SharedEmbedding(nn.Module):  # type: ignore[misc]
    """One matrix both ways: ids to vectors, and vectors to logits."""

    def __init__(self, vocabulary: int, units: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(vocabulary, units) * units**-0.5)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return functional.embedding(ids, self.table)

    def logits(self, x: torch.Tensor) -> torch.Tensor:
        """[batch, length, units] to [batch, length, vocabulary]."""
        return functional.linear(x, self.table)


class Layer(nn.Module):  # type: ignore[misc]
    """Attention to itself, to the memory if there is one, and two dense layers, each as x + part(norm(x))."""

    def __init__(
        self, units: int, heads: int, dropout: float, *, with_memory: bool = False, activation: object = functional.relu
    ) -> None:
        super().__init__()
        self.own_norm, self.own = _norm(units), Attention(units, heads, dropout)
        if with_memory:
            self.memory_norm, self.memory = _norm(units), Attention(units, heads, dropout)
        self.inner_norm, self.wide, self.narrow = _norm(units), dense(units, 4 * units), dense(4 * units, units)
        self.drop = nn.Dropout(dropout)
        self.activation = activation

    def forward(
        self,
        x: torch.Tensor,
        *,
        mask: torch.Tensor | None = None,
        causal: bool = False,
        memory: torch.Tensor | None = None,
        memory_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        y = self.own_norm(x)
        x = x + self.drop(self.own(y, y, mask, causal))
        if memory is not None:
            x = x + self.drop(self.memory(self.memory_norm(x), memory, memory_mask, False))
        return x + self.drop(self.narrow(self.activation(self.wide(self.inner_norm(x)))))  # type: ignore[operator]


class Attention(nn.Module):  # type: ignore[misc]
    """Scaled dot-product attention with several heads."""

    def __init__(self, units: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.query, self.key, self.value, self.out = (dense(units, units) for _ in range(4))
        self.heads = heads
        self.dropout = dropout

    def forward(self, x: torch.Tensor, memory: torch.Tensor, mask: torch.Tensor | None, causal: bool) -> torch.Tensor:
        query, key, value = self._split(self.query(x)), self._split(self.key(memory)), self._split(self.value(memory))
        dropout = self.dropout if self.training else 0.0
        joined = functional.scaled_dot_product_attention(query, key, value, mask, dropout, is_causal=causal)
        out: torch.Tensor = self.out(joined.transpose(1, 2).flatten(2))
        return out

    def _split(self, x: torch.Tensor) -> torch.Tensor:
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


def _norm(units: int) -> nn.LayerNorm:
    return nn.LayerNorm(units, eps=1e-3)


def _waves(length: int, units: int, device: torch.device) -> torch.Tensor:
    rate = torch.exp(torch.arange(units // 2, device=device) * (-math.log(10000.0) / (units // 2)))
    angle = torch.arange(length, device=device)[:, None] * rate
    return torch.cat([torch.sin(angle), torch.cos(angle)], dim=-1)
