"""Random numbers that depend on what they are for and on nothing that happened before."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


def seed_of(*parts: int) -> int:
    """A seed of its own for each purpose: epoch 7 draws the same whether or not the training was interrupted before."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


@contextmanager
def repeatable() -> Iterator[None]:
    """Leaves torch's random numbers as they were, and lets torch choose algorithms that repeat, where there are any."""
    import warnings

    import torch

    before = torch.get_deterministic_debug_mode()
    with torch.random.fork_rng(), warnings.catch_warnings():
        # Some CUDA sums are not deterministic (docs/guides/training-inspectors.md); a warning for each would not help.
        warnings.filterwarnings("ignore", message=".*deterministic.*")
        # Like use_deterministic_algorithms, which however loads torch's compiler: a second that is not the training's.
        torch.set_deterministic_debug_mode("warn")
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode(before)
