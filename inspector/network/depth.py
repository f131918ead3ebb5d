"""Depths: a number, or a function of the number of nodes, rounded down, at least 1."""

from __future__ import annotations

import math
from collections.abc import Callable

from driple.contracts.errors import BadInput, nearest, shown

POLICIES: dict[str, Callable[[int], float]] = {
    "N": lambda n: n,
    "N/2": lambda n: n // 2,
    "N/3": lambda n: n // 3,
    "log2N": lambda n: math.log2(n),
    "2log2N": lambda n: 2 * math.log2(n),
    "3log2N": lambda n: 3 * math.log2(n),
    "4log2N": lambda n: 4 * math.log2(n),
    "log10N": lambda n: math.log10(n),
    "sqrtN": lambda n: math.isqrt(n),
    "3sqrtN": lambda n: math.isqrt(9 * n),
}
MOST = 1000
"""A greater number is probably a typing error."""


def depth(policy: str, nodes: int, name: str = "depth") -> int:
    """Steps for a graph with this number of nodes.

    Raises:
        BadInput: the policy (`name` in the message) is neither a whole number of 1 or more nor one of POLICIES.
    """
    text = policy.replace(" ", "")
    if text in POLICIES:
        return max(1, int(POLICIES[text](max(nodes, 1))))
    if text.isascii() and text.isdigit() and len(text) < 9 and 1 <= int(text) <= MOST:
        return int(text)
    guess = nearest(text, POLICIES)
    hint = f"; did you mean {guess!r}?" if guess else ""
    raise BadInput(f"{name}: unknown {shown(policy)}{hint} (a number from 1 to {MOST}, or {', '.join(POLICIES)})")


def depends_on_graph(policy: str) -> bool:
    """Whether graphs of different sizes get different depths."""
    return policy.replace(" ", "") in POLICIES
