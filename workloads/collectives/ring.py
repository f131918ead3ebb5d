"""The ring of the transport's own library."""

from __future__ import annotations

import torch

from driple.contracts.strategy import RING
from driple.workloads.collectives.base import Collective, Messages


class Ring(Collective):
    """Every worker sends to the next one, in 2 (n - 1) rounds of an n-th of the buffer."""

    name = RING

    def __init__(self, messages: Messages) -> None:
        self._messages = messages

    def all_reduce(self, flat: torch.Tensor) -> None:
        self._messages.ring(flat)
