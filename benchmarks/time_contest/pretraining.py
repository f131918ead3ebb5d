"""Trains the graph encoder without labels, and keeps it.

Two tasks. Hidden groups: a quarter of the groups of a graph lose their features, and the decoder tells them from the
states of the others (mean square error). Two views: a graph is grouped twice, and the pooled states of both must be
nearer to each other than to those of the other graphs of the batch (InfoNCE).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from time_contest import encoder_graphs, generated_graphs, graph_encoder, graph_writer
from time_contest.encoder_graphs import EncoderGraph, two_views
from time_contest.encoder_graphs import zoo_graphs as graphs_of_the_zoo
from time_contest.graph_encoder import BATCH, GraphEncoder, batch_of, pooled

GENERATED = 4000
EPOCHS = 20
_HIDDEN_SHARE = 0.25
_TEMPERATURE = 0.1
_CONTRAST = 0.5
_SMALLEST_BATCH = 4

Views = Sequence[tuple[EncoderGraph, EncoderGraph]]
Say = Callable[[str], None]


def pretrained(views: Views, epochs: int = EPOCHS, seed: int = 0, say: Say = lambda text: None) -> GraphEncoder:
    """An encoder of these graphs, each in two groupings."""
    torch.manual_seed(seed)
    encoder = GraphEncoder()
    every = np.concatenate([view.features for pair in views for view in pair])
    encoder.mean.copy_(torch.as_tensor(every.mean(axis=0)))
    encoder.unit.copy_(torch.as_tensor(every.std(axis=0) + 1e-3))
    optimiser = torch.optim.AdamW(encoder.parameters(), 2e-3, weight_decay=1e-3)
    rng = np.random.default_rng(seed)
    begin = time.perf_counter()
    for epoch in range(epochs):
        losses = []
        for places in _batches(len(views), rng):
            loss = _loss(encoder, [views[place] for place in places])
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
            optimiser.step()
            losses.append(float(loss.detach()))
        say(f"encoder: epoch {epoch + 1} of {epochs}, loss {np.mean(losses):.3f}, {time.perf_counter() - begin:.0f} s")
    return encoder


def _batches(count: int, rng: np.random.Generator) -> Iterator[list[int]]:
    order = rng.permutation(count).tolist()
    for begin in range(0, count, BATCH):
        if len(order[begin : begin + BATCH]) >= _SMALLEST_BATCH:
            yield order[begin : begin + BATCH]


def _loss(encoder: GraphEncoder, views: Views) -> Tensor:
    total = torch.zeros(())
    projected = []
    for side in (0, 1):
        batch = batch_of([pair[side] for pair in views])
        hidden = (torch.rand(batch.real.shape) < _HIDDEN_SHARE) & batch.real
        states = encoder(batch, hidden)
        total = total + functional.mse_loss(encoder.decoder(states)[hidden], encoder.scaled(batch)[hidden])
        projected.append(functional.normalize(encoder.projection(pooled(states, batch.real)), dim=1))
    likeness = projected[0] @ projected[1].T / _TEMPERATURE
    same = torch.arange(len(views))
    return total + _CONTRAST * (functional.cross_entropy(likeness, same) + functional.cross_entropy(likeness.T, same))


def kept_encoder(folder: Path, say: Say, generated: int = GENERATED, epochs: int = EPOCHS) -> GraphEncoder:
    """The encoder of the zoo's graphs and generated ones, trained now or kept in a folder."""
    from safetensors.torch import load_file, save_file

    path = folder / f"encoder-{_key(generated, epochs)}.safetensors"
    encoder = GraphEncoder()
    if path.is_file():
        encoder.load_state_dict(load_file(path))
        return encoder
    say(f"encoder: groups {generated} generated graphs and those of the zoo")
    views = [*two_views(graphs_of_the_zoo()), *two_views(generated_graphs.generated_graphs(generated))]
    encoder = pretrained(views, epochs, say=say)
    folder.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".part")
    save_file(encoder.state_dict(), temporary)
    temporary.replace(path)
    return encoder


def _key(generated: int, epochs: int) -> str:
    """Changes with the code behind the encoder."""
    digest = sha256(f"{generated} {epochs}".encode())
    for module in (encoder_graphs, generated_graphs, graph_encoder, graph_writer):
        digest.update(Path(str(module.__file__)).read_bytes())
    digest.update(Path(__file__).read_bytes())
    return digest.hexdigest()[:12]
