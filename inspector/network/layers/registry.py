"""The table of message-passing layers. A new layer is a file and a line; torch is imported when one is built."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from driple.contracts.errors import UnknownName

LAYERS: dict[str, str] = {
    "gcn": "gcn:GcnLayer",
    "gin": "gin:GinLayer",
    "gat": "gat:GatLayer",
    "mpnn": "mpnn:MpnnLayer",
    "pna": "pna:PnaLayer",
}
"""Module of this package and class by name."""


def layer(name: str, inputs: int, outputs: int) -> Any:
    """A new layer.

    Raises:
        UnknownName: there is none of that name.
    """
    if name not in LAYERS:
        raise UnknownName("layer", name, tuple(LAYERS))
    module, _, kind = LAYERS[name].partition(":")
    return getattr(import_module(f"{__package__}.{module}"), kind)(inputs, outputs)
