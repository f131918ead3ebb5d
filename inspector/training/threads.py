"""How many threads compute.

Several threads meet after every small sum, and the first waits for the last. Where a sum is done sooner than they have
met, one thread is faster; and where another program has a processor, each meeting lasts until that program has had its
turn: a training of seconds then takes minutes. So what is small is computed by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

SMALL = 32_768
"""Numbers in the states of a batch: nothing smaller is divided by torch itself."""
FEW = 1_000
"""Rows up to which what is solved of them is small."""


def suited(nodes: int, hidden: int) -> int:
    """Threads for a network with so many nodes in a batch: as many as torch has, or one."""
    return 1 if nodes * hidden < SMALL else int(torch.get_num_threads())


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Torch has so many meanwhile."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def solver_threads(rows: int) -> Iterator[None]:
    """What numpy and scipy solve of so many rows is solved by as many threads as suit it."""
    with _libraries().limit(limits=1 if rows < FEW else None, user_api="blas"):
        yield


@cache
def _libraries() -> Any:
    """Looked for once: that takes milliseconds."""
    import scipy.linalg  # noqa: F401  brings one of its own
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
