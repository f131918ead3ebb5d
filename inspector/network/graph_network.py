"""The graph network: features of nodes -> layers -> readout -> MLP -> targets.

It also runs in stages, so that a frozen part is computed once:

    state = network.encode(graphs, stop=0.5)                   # the first half of each graph's layers
    state = network.encode(graphs, state, start=0.5)           # the rest
    predicted = network.head(graphs, state, facts)             # readout, MLP: [B, outputs]
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout, leaky_relu

from driple.contracts.errors import BadInput
from driple.contracts.metrics import COLUMNS
from driple.inspector.model.model_config import NetworkConfig
from driple.inspector.network.batching.graph_batch import Graphs
from driple.inspector.network.depth import depends_on_graph, depth
from driple.inspector.network.layers.gru import StateCell
from driple.inspector.network.layers.layer_chain import FAST_CHAINS, chain
from driple.inspector.network.layers.registry import layer
from driple.inspector.network.readouts.registry import readout


class Network(nn.Module):  # type: ignore[misc]
    """A batch of graphs, and facts [B, facts], to [B, outputs]."""

    def __init__(
        self,
        config: NetworkConfig,
        node_features: int,
        facts: int,
        outputs: int = len(COLUMNS),
        *,
        split: float | None = None,
    ) -> None:
        """Draw initial weights.

        Args:
            config: every choice.
            node_features: features of each node.
            facts: features of each workload; base predictions are the last of them.
            outputs: targets.
            split: share of each graph's layers after which the rest have weights of their own, also if layers share
                weights. Transfer tunes the rest separately.

        Raises:
            BadInput: an invalid depth, number of steps or split.
        """
        super().__init__()
        if split is not None and not 0 < split < 1:
            raise BadInput(f"split: expected a share between 0 and 1, got {split}")
        if config.plain and facts < outputs:
            raise BadInput(f"a base model has {outputs} targets, and there are only {facts} features")
        self.config, self.split = config, split
        self.node_features, self.facts, self.outputs = node_features, facts, outputs
        hidden = config.hidden
        self._fixed = fixed = None if depends_on_graph(config.depth) else depth(config.depth, 1)
        # Features need a projection only where they must be as wide as a state.
        as_given = config.gru != "state" and not config.jump and (config.gru == "off" or node_features <= hidden)
        self.project = None if as_given else nn.Linear(node_features, hidden)
        self.layers = nn.ModuleList(layer(config.layer, *size) for size in self._sizes(fixed))
        self.cell = None if config.gru == "off" else StateCell(config.gru, hidden)
        # Only where some graph has layers after the split: unused weights would look trained.
        splits = split is not None and (fixed is None or _layers_before(fixed, split) < fixed)
        self.late_layer = layer(config.layer, hidden, hidden) if splits and config.shared else None
        self.late_cell = StateCell(config.gru, hidden) if splits and self.cell is not None else None
        width = hidden * (1 + (fixed or 0)) if config.jump else hidden
        self.readout = readout(config.readout, width, hidden, config.readout_steps)
        width = self.readout.outputs + (facts if config.facts else 0)
        sizes = [width, *[hidden] * (config.mlp_layers - 1), outputs]
        self.mlp = nn.ModuleList(nn.Linear(*pair) for pair in zip(sizes, sizes[1:], strict=False))
        if config.start == "published":
            _draw_as_published(self.mlp)
        if config.plain:
            nn.init.zeros_(self.mlp[-1].weight)
            nn.init.zeros_(self.mlp[-1].bias)
            # Residual scale: typical error of the base model per target, stored with the weights.
            self.register_buffer("doubt", torch.ones(outputs))

    def _sizes(self, fixed: int | None) -> list[tuple[int, int]]:
        """Inputs and outputs of the layers that do not share weights."""
        hidden = self.config.hidden
        if self.project is None:
            others = (0 if fixed == 1 else 1) if self.config.shared else (fixed or 1) - 1
            return [(self.node_features, hidden), *[(hidden, hidden)] * others]
        return [(hidden, hidden)] * (1 if self.config.shared else fixed or 1)

    def forward(self, graphs: Graphs, facts: Tensor | None = None) -> Tensor:
        return self.head(graphs, self.encode(graphs), facts)

    def layers_of(self, nodes: int) -> int:
        """Layers that a graph of so many nodes goes through."""
        return depth(self.config.depth, nodes) if self._fixed is None else self._fixed

    def layers_before_split(self) -> list[nn.Module]:
        """Layers that no graph goes through after the split."""
        if self.split is None or self.config.shared:
            return list(self.layers)
        return list(self.layers[: _layers_before(len(self.layers), self.split)])

    def encode(self, graphs: Graphs, state: Tensor | None = None, start: float = 0.0, stop: float = 1.0) -> Tensor:
        """States after the layers between two shares of each graph's depth.

        `state` is the result of `encode` up to `start`; None at the start. The result is [..., hidden]; with jumps, all
        states so far side by side.
        """
        if state is None:
            state = graphs.features if self.project is None else self.project(graphs.features)
        if self.split is not None and start < self.split < stop:
            state = self.encode(graphs, state, start, self.split)
            start = self.split
        begin = [_layers_before(self.layers_of(nodes), start) for nodes in graphs.counts]
        end = [_layers_before(self.layers_of(nodes), stop) for nodes in graphs.counts]
        late = self.split is not None and start >= self.split
        first = begin[0]  # the same in all if layers differ; and either all begin at 0 or none does

        def layer_at(step: int) -> nn.Module:
            if late and self.late_layer is not None:
                return self.late_layer
            return self.layers[min(first + step, len(self.layers) - 1)]

        x = state[..., -self.config.hidden :] if self.config.jump else state
        steps = [after - before for before, after in zip(begin, end, strict=True)]
        cell = self.late_cell if late else self.cell
        if self.config.shared and not self.config.jump and max(steps) > 0:
            for quick in FAST_CHAINS:
                last = quick(graphs, x, layer_at(0), layer_at(1), cell, steps)
                if last is not None:
                    return last
        states = chain(graphs, x, layer_at, cell, steps)
        if self.config.jump:
            return torch.cat([state, *states], dim=-1)
        return states[-1] if states else state

    def head(self, graphs: Graphs, state: Tensor, facts: Tensor | None = None) -> Tensor:
        """Targets from the states after the last layer."""
        return self.answer(self.readout(graphs, state), facts)

    def answer(self, read: Tensor, facts: Tensor | None = None) -> Tensor:
        """Targets from the result of the readout."""
        x = read
        if self.config.facts and self.facts:
            x = torch.cat([x, facts], dim=-1)
        for linear in self.mlp[:-1]:
            x = dropout(linear(x).relu(), self.config.dropout, self.training)
        x = self.mlp[-1](x)
        if self.config.output == "leaky":
            x = leaky_relu(x, 0.01)
        if self.config.plain:
            assert facts is not None
            most = self.config.most_added * self.doubt
            x = facts[:, -self.outputs :] + most * (x / most).tanh()
        return x


def _layers_before(layers: int, share: float) -> int:
    """Layers in the first `share`, rounded up; at least the first, which takes the features."""
    return max(1, math.ceil(layers * share - 1e-9)) if share > 0 else 0


def _draw_as_published(mlp: nn.ModuleList) -> None:
    """The published initialisation of the MLP, near zero; that of the other parts is the usual one."""
    for linear in mlp:
        nn.init.xavier_uniform_(linear.weight, gain=1 / linear.in_features)
        nn.init.zeros_(linear.bias)
