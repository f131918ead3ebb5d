"""The table of readouts. A new readout is a file and a line; torch is imported when one is built."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from driple.contracts.errors import UnknownName

READOUTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "set2set": ("set2set:Set2SetReadout", ("inputs", "steps")),
    "mean": ("mean:MeanReadout", ("inputs",)),
    "max": ("max:MaxReadout", ("inputs",)),
    "attention": ("attention:AttentionReadout", ("inputs", "hidden")),
    "cost": ("cost:CostReadout", ("inputs", "hidden")),
}
"""Module of this package and class by name, and which of inputs, hidden and steps it takes."""


def readout(name: str, inputs: int, hidden: int, steps: str) -> Any:
    """A new readout; `outputs` is the size of its result.

    Raises:
        UnknownName: there is none of that name.
        BadInput: the steps are not as depth.py has them.
    """
    if name not in READOUTS:
        raise UnknownName("readout", name, tuple(READOUTS))
    path, takes = READOUTS[name]
    module, _, kind = path.partition(":")
    given = {"inputs": inputs, "hidden": hidden, "steps": steps}
    return getattr(import_module(f"{__package__}.{module}"), kind)(*(given[one] for one in takes))
