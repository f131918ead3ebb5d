"""Memory for what a backward pass needs, used again from batch to batch: fresh pages cost as much as the arithmetic."""

from __future__ import annotations

from threading import Lock

import torch
from torch import Tensor

KEPT = 2  # one for the layers, one for the readout
_spare: list[Tensor] = []
_lock = Lock()


def borrow(floats: int) -> Tensor:
    """Memory of at least so many floats, of no particular content."""
    with _lock:
        for place, spare in enumerate(_spare):  # the smallest first
            if spare.numel() >= floats:
                return _spare.pop(place)
    return torch.empty(floats, dtype=torch.float32)


def give_back(tape: Tensor) -> None:
    """For the next to borrow. The largest are kept."""
    with _lock:
        _spare.append(tape)
        _spare.sort(key=Tensor.numel)
        del _spare[:-KEPT]
