"""Random numbers that depend only on their purpose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np


def seed_of(*parts: int) -> int:
    """A seed per purpose: an epoch draws the same numbers whether or not the training was interrupted before."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


@contextmanager
def repeatable() -> Iterator[None]:
    """Restores torch's random state at the end, and lets torch choose deterministic algorithms where it has them."""
    import warnings

    import torch

    before = torch.get_deterministic_debug_mode()
    with torch.random.fork_rng(), warnings.catch_warnings():
        # Some CUDA sums are not deterministic (docs/guides/training-inspectors.md); a warning for each would not help.
        warnings.filterwarnings("ignore", message=".*deterministic.*")
        # Not use_deterministic_algorithms: it loads torch's compiler, which takes a second.
        torch.set_deterministic_debug_mode("warn")
        try:
            yield
        finally:
            torch.set_deterministic_debug_mode(before)
