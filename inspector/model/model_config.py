"""The configuration of an inspector, and its presets.

`paper` is the recipe that the authors of Driple published. `driple` is ours, and the default.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field

from driple.contracts.errors import BadInput, UnknownName
from driple.inspector.network.depth import MOST as MOST_LAYERS
from driple.inspector.network.depth import depth
from driple.inspector.network.layers.registry import LAYERS
from driple.inspector.network.readouts.registry import READOUTS

GRUS = ("off", "message", "state")
FEATURE_KINDS = ("paper", "driple")
LOOPS = EVERY, ONCE = ("every", "once")
FEATURE_SCALES = ("raw", "log")
TARGET_SCALES = ("max", "log")
STARTS = ("published", "usual")
EXECUTIONS = ("auto", "dense", "dgl")
MOST_HIDDEN = 4096
"""A greater number is probably a typing error."""


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """The graph network. layers/ and readouts/ have the formulas."""

    layer: str = "gin"
    """Message-passing layer."""
    gru: str = "state"
    """A recurrent cell after each layer, see gru.py: `off`; `message`, as published; or `state`."""
    depth: str = "3"
    """Number of layers: a number, or a function of the number of nodes N, see depth.py."""
    shared: bool = False
    """All layers after the first share weights; required if the depth depends on N."""
    jump: bool = True
    """The readout receives the states before the first and after every layer, not only after the last."""
    readout: str = "cost"
    """From the nodes' states to one vector."""
    readout_steps: str = "N"
    """Steps of set2set, as depth."""
    hidden: int = 32
    """Size of a node's state."""
    mlp_layers: int = 2
    """Linear layers from readout to targets."""
    facts: bool = True
    """The MLP receives the workload features beside the readout."""
    plain: bool = True
    """The network corrects a base model (stacked_regressor.py), and begins with no correction."""
    most_added: float = 0.25
    """Largest correction, as a share of the typical out-of-fold error of the base model per target. Validation rows
    are of few families: a network that fits these may be far off for others."""
    output: str = "linear"
    """Activation of the targets: `linear`, or `leaky` as published."""
    start: str = "usual"
    """Initial weights: the defaults of torch, or as `published`."""
    dropout: float = 0.3
    """Share of the MLP's hidden units that are dropped in training."""

    def __post_init__(self) -> None:
        one_of("layer", self.layer, tuple(LAYERS))
        one_of("gru", self.gru, GRUS)
        one_of("readout", self.readout, tuple(READOUTS))
        one_of("output", self.output, ("linear", "leaky"))
        one_of("start", self.start, STARTS)
        for name, most in (("hidden", MOST_HIDDEN), ("mlp_layers", MOST_LAYERS)):
            if not 1 <= getattr(self, name) <= most:
                raise BadInput(f"{name}: expected 1 to {most}, got {getattr(self, name)}")
        for name in ("depth", "readout_steps"):
            depth(getattr(self, name), 1, name)  # raises if it is not valid
        if not 0 < self.most_added < math.inf:
            raise BadInput(f"most_added: expected a number more than 0, got {self.most_added}")
        if not 0 <= self.dropout < 1:
            raise BadInput(f"dropout: expected 0 or more and less than 1, got {self.dropout}")
        if not self.depth.isdigit() and (not self.shared or self.jump):
            raise BadInput(
                f"depth {self.depth!r} depends on the graph: layers then share weights and have no jumps; or a number"
            )


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The training loop."""

    learning_rate: float = 1e-3
    weight_decay: float = 1e-2
    """As `decoupled` says: of AdamW, or added to the gradient as in plain Adam."""
    decoupled: bool = True
    batch_size: int = 32
    shuffle: bool = True
    """Batches in a new order every epoch, or always in the order of the dataset."""
    epochs: int = 300
    """At most."""
    patience: int = 40
    """Epochs without a better validation error before the loop ends."""
    watch: str = "nrmse"
    """Validation error that decides what is best: `nrmse` in the targets' own units, or `loss`."""
    clip: float = 1.0
    """Largest norm of the gradient; 0 for none."""

    def __post_init__(self) -> None:
        one_of("watch", self.watch, ("nrmse", "loss"))
        for name in ("batch_size", "epochs", "patience"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name}: expected at least 1, got {getattr(self, name)}")
        if not 0 < self.learning_rate < math.inf:
            raise BadInput(f"learning_rate: expected a number more than 0, got {self.learning_rate}")
        for name in ("weight_decay", "clip"):
            if not 0 <= getattr(self, name) < math.inf:
                raise BadInput(f"{name}: expected 0 or more, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class InspectorConfig:
    """All choices."""

    preset: str = "driple"
    """The preset that the other choices started from."""
    grouping: str = "uniform:20"
    """How ops are grouped to nodes: see pipeline/graph/group_count.py."""
    features: str = "driple"
    """Node features: the three of the `paper`, or ours."""
    loops: str = EVERY
    """How often FLOPs and bytes of ops in loops count in features: in `every` iteration, or `once`, as in inspectors of
    release 0.2. Node features of the `paper` always count once."""
    feature_scale: str = "log"
    """`raw`, or logarithm and then mean 0, deviation 1 over the training rows."""
    target_scale: str = "log"
    """`max`: share of the training maximum, as published; `log`: logarithm, then mean 0, deviation 1."""
    ensemble: int = 1
    """Networks of different seeds whose predictions are averaged; with 2 or more there is a spread."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)

    def __post_init__(self) -> None:
        one_of("features", self.features, FEATURE_KINDS)
        one_of("loops", self.loops, LOOPS)
        one_of("feature_scale", self.feature_scale, FEATURE_SCALES)
        one_of("target_scale", self.target_scale, TARGET_SCALES)
        if self.ensemble < 1:
            raise BadInput(f"ensemble: expected at least 1, got {self.ensemble}")


def one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    """Raises UnknownName for a value that is not known."""
    if value not in known:
        raise UnknownName(name, value, known)


PRESETS: dict[str, InspectorConfig] = {
    "driple": InspectorConfig(),
    "paper": InspectorConfig(
        preset="paper",
        grouping="uniform:100",
        features="paper",
        loops=ONCE,
        feature_scale="raw",
        target_scale="max",
        network=NetworkConfig(
            layer="gcn",
            gru="message",
            depth="N/2",
            shared=True,
            jump=False,
            readout="set2set",
            hidden=64,
            mlp_layers=3,
            facts=False,
            plain=False,
            output="leaky",
            start="published",
            dropout=0.0,
        ),
        training=TrainingConfig(
            learning_rate=3e-3,
            weight_decay=1e-6,
            decoupled=False,
            batch_size=32,
            shuffle=False,
            epochs=10_000,
            patience=1000,
            watch="loss",
            clip=0.0,
        ),
    ),
}


def preset(name: str) -> InspectorConfig:
    """A preset by its name; raises UnknownName if there is none."""
    one_of("preset", name, tuple(PRESETS))
    return PRESETS[name]


def changed(config: InspectorConfig, **choices: object) -> InspectorConfig:
    """The config with other values for some fields, also those of its parts; None leaves a field as it is."""
    parts: dict[str, object] = {}
    wanted = {name: value for name, value in choices.items() if value is not None}
    for part in ("network", "training"):
        inner = getattr(config, part)
        own = {name: wanted.pop(name) for name in [f.name for f in dataclasses.fields(inner)] if name in wanted}
        parts[part] = dataclasses.replace(inner, **own)
    return dataclasses.replace(config, **parts, **wanted)  # type: ignore[arg-type]
