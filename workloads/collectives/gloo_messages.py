"""Messages of the process group of torch.distributed."""

from __future__ import annotations

import torch
import torch.distributed as dist

from driple.contracts.strategy import GLOO
from driple.workloads.collectives.base import Messages, Pending


class GlooMessages(Messages):
    """The default process group, which must be one of gloo: others have no tags."""

    name = GLOO

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.workers = dist.get_world_size()

    def send(self, tensor: torch.Tensor, to: int, tag: int) -> Pending:
        return _known(dist.isend(tensor, to, tag=tag))

    def receive(self, tensor: torch.Tensor, source: int, tag: int) -> Pending:
        return _known(dist.irecv(tensor, source, tag=tag))

    def ring(self, flat: torch.Tensor) -> None:
        dist.all_reduce(flat)


def _known(work: Pending | None) -> Pending:
    assert work is not None  # None is for processes outside of the group
    return work
