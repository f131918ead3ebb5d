"""Layers by the names that users give."""

from __future__ import annotations

from torch import nn

from driple.contracts.errors import UnknownName
from driple.inspector.network.layers.gat import GatLayer
from driple.inspector.network.layers.gcn import GcnLayer
from driple.inspector.network.layers.gin import GinLayer
from driple.inspector.network.layers.mpnn import MpnnLayer
from driple.inspector.network.layers.pna import PnaLayer

LAYERS: dict[str, type[nn.Module]] = {
    "gcn": GcnLayer,
    "gin": GinLayer,
    "gat": GatLayer,
    "mpnn": MpnnLayer,
    "pna": PnaLayer,
}


def layer(name: str, inputs: int, outputs: int) -> nn.Module:
    """A new layer.

    Raises:
        UnknownName: there is none of that name.
    """
    if name not in LAYERS:
        raise UnknownName("layer", name, tuple(LAYERS))
    return LAYERS[name](inputs, outputs)
