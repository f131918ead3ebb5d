"""Readouts by the names that users give."""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from driple.contracts.errors import UnknownName
from driple.inspector.network.readouts.attention import AttentionReadout
from driple.inspector.network.readouts.cost import CostReadout
from driple.inspector.network.readouts.max import MaxReadout
from driple.inspector.network.readouts.mean import MeanReadout
from driple.inspector.network.readouts.set2set import Set2SetReadout

READOUTS: dict[str, Callable[[int, int, str], nn.Module]] = {
    "set2set": lambda inputs, hidden, steps: Set2SetReadout(inputs, steps),
    "mean": lambda inputs, hidden, steps: MeanReadout(inputs),
    "max": lambda inputs, hidden, steps: MaxReadout(inputs),
    "attention": lambda inputs, hidden, steps: AttentionReadout(inputs, hidden),
    "cost": lambda inputs, hidden, steps: CostReadout(inputs, hidden),
}


def readout(name: str, inputs: int, hidden: int, steps: str) -> nn.Module:
    """A new readout; `outputs` is the size of what it gives.

    Raises:
        UnknownName: there is none of that name.
        BadInput: the steps are not as depth.py has them.
    """
    if name not in READOUTS:
        raise UnknownName("readout", name, tuple(READOUTS))
    return READOUTS[name](inputs, hidden, steps)
