"""First weights of a network: drawn, and set to a plain model; or those that were learned elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from driple.contracts.errors import BadInput
from driple.contracts.plain import to_plain
from driple.inspector.checkpoint import fill, new_network
from driple.inspector.config import InspectorConfig
from driple.inspector.executions.choice import choose
from driple.inspector.learner import Learner, Tuned, Whole
from driple.inspector.plainstart import Rows, folds_of, plain_start
from driple.inspector.prepare import Preparation, Prepared
from driple.inspector.seeds import repeatable, seed_of
from driple.inspector.source import Source
from driple.inspector.transfer import prepare_transfer

START = 3
"""What the random numbers of first weights are for."""
AT_ONCE = 64


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """How a network that learned elsewhere is tuned."""

    source: Source
    tune: str = "half"
    ratio: float = 0.5
    """Share of each graph's layers that stay as they are, where `tune` is `half`."""

    def to_plain(self) -> dict[str, Any]:
        """For inspector.json, and to tell one training from another."""
        return {**self.source.about, "tune": self.tune, "ratio": self.ratio}


def start(
    member: int,
    config: InspectorConfig,
    preparation: Preparation,
    rows: tuple[Prepared, Prepared],
    split: str,
    seed: int,
    execution: str,
    transfer: Transfer | None,
) -> Learner:
    """A network with its first weights.

    Args:
        member: its number in the ensemble.
        config: what network.
        preparation: of its inputs.
        rows: to train on, and to validate by.
        split: by which they were taken.
        seed: of what is drawn.
        execution: how neighbours are summed.
        transfer: what was learned elsewhere.
    """
    train, val = rows
    names = train.families if split == "architecture" else (None,) * len(train)
    folds = folds_of(names, len(train))
    with repeatable():
        torch.manual_seed(seed_of(seed, member, START))
        if transfer is None:
            network = new_network(config, preparation)
            if network.straight is not None:
                # Networks of an ensemble must differ where they are unsure: each later one starts from its own draw.
                drawn = torch.randint(len(train), (len(train),)) if member else torch.arange(len(train))
                own = Rows.of(train.facts[drawn], train.targets[drawn], train.mask[drawn])
                plain_start(network, own, folds[drawn.numpy()], Rows.of(val.facts, val.targets, val.mask))
            return Whole(network)
        source = transfer.source
        network = new_network(config, preparation, split=source.layer_split)
        fill(network, source.states[member % len(source.states)], "the weights to start from")
        if network.straight is not None:
            left = [Rows.of(part.facts, part.targets - _outputs(network, part, execution), part.mask) for part in rows]
            plain_start(network, left[0], folds, left[1], fresh=False)
        return Tuned(prepare_transfer(network, transfer.tune, transfer.ratio))


def _outputs(network: Any, rows: Prepared, execution: str) -> Any:
    build = choose(execution, rows.sizes())
    network.eval()
    with torch.no_grad():
        return torch.cat(
            [network(batch.graphs, batch.facts) for batch in rows.batches(range(len(rows)), AT_ONCE, build)]
        )


def same_network(config: InspectorConfig, source: Source) -> None:
    """Makes sure that a transfer keeps its source's network.

    Raises:
        BadInput: the config is of another.
    """
    ours, theirs = _structure(config), _structure(source.config)
    # A published checkpoint comes without a recipe and without a scale of its targets: these are free.
    free = ("grouping", "target_scale") if source.preparation is None else ()
    for name, value in ours.items():
        if name not in free and theirs[name] != value:
            raise BadInput(
                f"{name}: the network to start from has {theirs[name]!r}, not {value!r}; a transfer keeps its source's "
                "network, so leave that option out"
            )


def _structure(config: InspectorConfig) -> dict[str, Any]:
    """What makes a network the kind it is. How it is trained, and how many there are, does not."""
    plain = to_plain(config)
    network = plain.pop("network")
    for name in ("preset", "ensemble", "training"):
        del plain[name]
    for name in ("start", "dropout"):
        del network[name]
    return {**plain, **network}
