"""Numbers of threads.

Threads synchronise after every operation. For small operations one thread is faster, and where other programs use the
processors, several threads make a training of seconds take minutes. So small work uses one thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch

SMALL = 32_768
"""Numbers in the states of a batch: torch itself does not divide smaller ones."""
FEW = 1_000
"""Rows up to which solvers use one thread."""


def suited(nodes: int, hidden: int) -> int:
    """Threads for a network with so many nodes in a batch: as many as torch has, or one."""
    return 1 if nodes * hidden < SMALL else int(torch.get_num_threads())


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Sets the number of threads of torch inside the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def solver_threads(rows: int) -> Iterator[None]:
    """Limits the threads of numpy and scipy for so many rows."""
    with _libraries().limit(limits=1 if rows < FEW else None, user_api="blas"):
        yield


@cache
def _libraries() -> Any:
    """Found once: that takes milliseconds."""
    import scipy.linalg  # noqa: F401  brings one of its own
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
