"""Sums over trees: up to the root, where parents add, and down again.

A buffer is cut into chunks, which the trees take in turn. All chunks are under way at once, so each has a tag of its
own: in a clique two workers exchange chunks of several trees, and would otherwise add one to another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from driple.contracts.traffic_formulas import ROOT, Tree
from driple.workloads.collectives.base import Collective, Messages, Pending

CHUNK_BYTES = 1 << 20


@dataclass
class _Chunk:
    tag: int
    data: torch.Tensor
    parent: int
    children: list[int]
    coming: list[tuple[torch.Tensor, Pending]]
    """What the children send, and the messages."""


class Forest(Collective):
    """All-reduce over one or several trees."""

    def __init__(self, messages: Messages, trees: Sequence[Tree], name: str) -> None:
        self.name = name
        self._messages = messages
        self._trees = trees
        self._tag = 0

    def all_reduce(self, flat: torch.Tensor) -> None:
        chunks = [self._begin(number, data) for number, data in enumerate(self._cut(flat))]
        down: list[Pending] = []
        for chunk, sent in [(chunk, self._up(chunk, down)) for chunk in chunks]:
            if sent is not None:
                sent.wait()
                self._messages.receive(chunk.data, chunk.parent, chunk.tag).wait()
                self._down(chunk, down)
        for message in down:
            message.wait()

    def _cut(self, flat: torch.Tensor) -> Sequence[torch.Tensor]:
        """Equal parts, as many for each tree, so that the trees carry the same."""
        rounds = -(-flat.numel() * flat.element_size() // (CHUNK_BYTES * len(self._trees)))
        chunks: Sequence[torch.Tensor] = flat.tensor_split(min(flat.numel(), rounds * len(self._trees)))
        return chunks

    def _begin(self, number: int, data: torch.Tensor) -> _Chunk:
        tree = self._trees[number % len(self._trees)]
        children = [child for child, parent in enumerate(tree) if parent == self._messages.rank]
        self._tag = self._tag + 1 if self._tag < self._messages.most_tag else 0
        boxes = [torch.empty_like(data) for _ in children]
        coming = [
            (box, self._messages.receive(box, child, self._tag)) for box, child in zip(boxes, children, strict=True)
        ]
        return _Chunk(self._tag, data, tree[self._messages.rank], children, coming)

    def _up(self, chunk: _Chunk, down: list[Pending]) -> Pending | None:
        """Adds what the children send, and sends the sum on; at the root it is complete and goes down."""
        for box, message in chunk.coming:
            message.wait()
            chunk.data += box
        if chunk.parent != ROOT:
            return self._messages.send(chunk.data, chunk.parent, chunk.tag)
        self._down(chunk, down)
        return None

    def _down(self, chunk: _Chunk, down: list[Pending]) -> None:
        down += [self._messages.send(chunk.data, child, chunk.tag) for child in chunk.children]
