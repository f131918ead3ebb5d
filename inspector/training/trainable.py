"""The trained part: a whole network, or the part of one that is tuned."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from driple.inspector.data.tensors import Batch


class Trainable(Protocol):
    """The interface of the training loop."""

    network: Any
    keeps_batches: bool
    """Something is computed once for each batch: then batches stay together, and only their order is drawn."""

    def parameters(self) -> Iterable[Any]:
        """Those that are trained."""

    def once(self, batch: Batch) -> Any:
        """The part that does not change while training."""

    def outputs(self, batch: Batch, once: Any) -> Any:
        """[B, 12], scaled."""


class Whole:
    """All of a network."""

    keeps_batches = False

    def __init__(self, network: Any) -> None:
        self.network = network

    def parameters(self) -> Iterable[Any]:
        return list(self.network.parameters())

    def once(self, batch: Batch) -> Any:
        return None

    def outputs(self, batch: Batch, once: Any) -> Any:
        return self.network(batch.graphs, batch.facts)


class Tuned:
    """The part of a network that is tuned after a transfer; what is frozen is computed once for each batch."""

    def __init__(self, transferred: Any) -> None:
        self._transferred = transferred
        self.network = transferred.network
        # Where hardly anything is frozen there is nothing to keep, and free batches teach more.
        self.keeps_batches = transferred.tune in ("half", "mlp")

    def parameters(self) -> Iterable[Any]:
        return list(self._transferred.tuned())

    def once(self, batch: Batch) -> Any:
        return self._transferred.cache(batch.graphs)

    def outputs(self, batch: Batch, once: Any) -> Any:
        return self._transferred(batch.graphs, once, batch.facts)
