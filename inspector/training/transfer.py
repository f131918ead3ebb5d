"""Transfer: start from a trained network, keep a part as it is, tune the rest on another setting's rows.

    transferred = prepare_transfer(network, "half")
    cached = transferred.cache(graphs)                         # once for each batch
    predicted = transferred(graphs, cached, facts)             # every epoch
    transferred.network.state_dict()                           # loads into a Network with the same `split`

| tune | frozen | tuned |
|---|---|---|
| `half` | the first layers of each graph (a share: half), their cell | the other layers, their cell, readout, MLP |
| `mlp` | all layers, cell, readout | MLP |
| `gru` | projection of the features, readout | all layers, cell, MLP |
| `all` | nothing | all |

With shared weights and `half`, the layers after the split get a copy of the weights, and of the cell, of their own:
otherwise tuning them would change the frozen ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import torch
from torch import Tensor, nn

from driple.contracts.errors import BadInput
from driple.inspector.model.model_config import one_of
from driple.inspector.network.batching.graph_batch import Graphs
from driple.inspector.network.graph_network import Network
from driple.inspector.training.train_config import TUNE_PARTS


class Transferred(nn.Module):  # type: ignore[misc]
    """A network and the part of it that is trained: all of it, or what `tune` names."""

    def __init__(self, network: Network, tune: str) -> None:
        """Freeze what `tune` does not name. `half` needs a network that is split."""
        super().__init__()
        self.network = network
        self.tune = tune
        network.requires_grad_(True)
        for part in self._frozen():
            part.requires_grad_(False)
        # A batch stays together where much is computed once for it; elsewhere freely drawn batches teach more.
        self.keeps_batches = tune in ("half", "mlp")

    def _frozen(self) -> Iterator[nn.Module]:
        """Parts by what they are, not by their names: a wrong name would silently freeze nothing."""
        network = self.network
        late = [network.late_layer, network.late_cell]
        parts: dict[str, list[nn.Module | None]] = {
            "half": [network.project, *network.layers_before_split(), network.cell],
            "mlp": [network.project, *network.layers, network.cell, *late, network.readout],
            "gru": [network.project, network.readout],
            "all": [],
        }
        return (part for part in parts[self.tune] if part is not None)

    def tuned(self) -> list[nn.Parameter]:
        """The parameters of the optimiser."""
        return [weight for weight in self.network.parameters() if weight.requires_grad]

    def cache(self, graphs: Graphs) -> Tensor:
        """The output of the frozen part for a batch, the same in every epoch."""
        if self.tune == "all":
            return graphs.features
        with torch.no_grad():
            if self.tune == "mlp":
                return self.network.readout(graphs, self.network.encode(graphs))
            return self.network.encode(graphs, stop=self._cached_share())

    def forward(self, graphs: Graphs, cached: Tensor, facts: Tensor | None = None) -> Tensor:
        """Targets [B, outputs] of a batch of which `cache` was asked before."""
        if self.tune == "mlp":
            return self.network.answer(cached, facts)
        if self.tune == "all":
            return self.network(graphs, facts)
        state = self.network.encode(graphs, cached, start=self._cached_share())
        return self.network.head(graphs, state, facts)

    def _cached_share(self) -> float:
        return self.network.split or 0.0 if self.tune == "half" else 0.0


def prepare_transfer(network: Network, tune: str, ratio: float = 0.5) -> Transferred:
    """A copy of a trained network with a part frozen.

    Args:
        network: the network.
        tune: one of TUNE_PARTS.
        ratio: for `half`: share of each graph's layers that is frozen, rounded up to whole layers.

    Raises:
        BadInput: an unknown part, an invalid ratio, or the network is already split elsewhere.
    """
    one_of("part to tune", tune, TUNE_PARTS)
    if tune == "half":
        if not 0 < ratio < 1:
            raise BadInput(f"transfer ratio: expected a share between 0 and 1, got {ratio} (0: tune all; 1: tune mlp)")
        if network.split is None:
            return Transferred(_split(network, ratio), tune)
        if network.split != ratio:
            raise BadInput(
                f"transfer ratio: the network to start from is split at {network.split} already; "
                f"say that ratio, or tune mlp, gru or all"
            )
    return Transferred(deepcopy(network), tune)


def _split(network: Network, ratio: float) -> Network:
    """The same function with weights of their own for the layers after the split."""
    result = Network(network.config, network.node_features, network.facts, network.outputs, split=ratio)
    state = network.state_dict()
    for ours, source in (("late_layer", f"layers.{len(network.layers) - 1}"), ("late_cell", "cell")):
        if getattr(result, ours) is not None:
            copies = {name: weight for name, weight in state.items() if name.startswith(f"{source}.")}
            state.update({ours + name[len(source) :]: weight for name, weight in copies.items()})
    result.load_state_dict(state, strict=True)
    result.to(next(network.parameters()).device)
    result.train(network.training)
    return result
