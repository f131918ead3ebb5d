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

    before, only_warn = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
    )
    with torch.random.fork_rng(), warnings.catch_warnings():
        # On CUDA some sums have no form that repeats. docs/INSPECTOR.md says so once; a line for each would not help.
        warnings.filterwarnings("ignore", message=".*deterministic.*")
        torch.use_deterministic_algorithms(True, warn_only=True)
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(before, warn_only=only_warn)
