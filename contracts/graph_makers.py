"""What a training graph can be built with: every framework, and ONNX files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Tuple

from driple.contracts.strategy import FRAMEWORKS

TENSORFLOW = "tensorflow"
TORCH = "torch"
ONNX = "onnx"


@dataclass(frozen=True)
class GraphMaker:
    """Builds training graphs, in `python -m driple.workloads.cli graph`."""

    name: str
    title: str
    """As it is written in messages."""
    modules: Tuple[str, ...]
    """That must be installed."""
    extra: str
    """The extra of driple that installs them."""


GRAPH_MAKERS: Dict[str, GraphMaker] = {
    **{name: GraphMaker(name, one.title, tuple(one.packages), one.extra) for name, one in FRAMEWORKS.items()},
    ONNX: GraphMaker(ONNX, "ONNX", (ONNX,), ONNX),
}


def title_of(maker: str) -> str:
    """The title of a maker, also of one that another release has."""
    return GRAPH_MAKERS[maker].title if maker in GRAPH_MAKERS else maker
