"""Transports by backend, and collectives by topology. A new one is a file here and a line below.

The trees of a topology are in contracts/traffic_formulas.py, which has its traffic too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from driple.contracts import strategy as names
from driple.contracts.traffic_formulas import trees
from driple.workloads.collectives.base import Collective, Link, Messages
from driple.workloads.collectives.forest import Forest
from driple.workloads.collectives.gloo_messages import GlooMessages
from driple.workloads.collectives.mpi_messages import MpiMessages
from driple.workloads.collectives.ring import Ring

MESSAGES: dict[str, Callable[[Link], Messages]] = {names.GLOO: lambda link: GlooMessages(), names.MPI: MpiMessages}


def _ring(topology: str, messages: Messages, machines: Sequence[int]) -> Collective:
    return Ring(messages)


def _forest(topology: str, messages: Messages, machines: Sequence[int]) -> Collective:
    return Forest(messages, trees(topology, machines), topology)


COLLECTIVES: dict[str, Callable[[str, Messages, Sequence[int]], Collective]] = {
    names.RING: _ring,
    **dict.fromkeys((names.STAR, names.TREE, names.BINARY_TREE_STAR, names.CLIQUE), _forest),
}


def collective(topology: str, messages: Messages, machines: Sequence[int]) -> Collective:
    """The all-reduce of a topology, for workers on these machines."""
    return COLLECTIVES[topology](topology, messages, machines)
