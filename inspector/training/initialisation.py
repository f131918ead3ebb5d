"""The start of a training: a base model, and a network with initial weights or those of a source."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from driple.contracts.errors import BadInput
from driple.contracts.json_values import to_plain
from driple.inspector.base_model.stacked_regressor import BaseModel, SourceModel, folds_of
from driple.inspector.data.array_types import FloatArray
from driple.inspector.data.tensors import Preparation, Prepared
from driple.inspector.model.inspector_folder import fill, new_network
from driple.inspector.model.model_config import InspectorConfig
from driple.inspector.training.seeds import repeatable, seed_of
from driple.inspector.training.threads import solver_threads
from driple.inspector.training.transfer import Transferred, prepare_transfer
from driple.inspector.training.transfer_source import Source

LEAST_DOUBT = 1e-3
"""Deviations."""
DIGITS = 5
"""Decimal digits of the stored out-of-fold predictions."""
START, AGAIN = 3, 4
"""Purposes of random numbers: initial weights, and the bootstrap of the final base model."""


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """How a source network is fine-tuned."""

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
    transfer: Transfer | None,
) -> tuple[Transferred, BaseModel | None, tuple[Prepared, Prepared]]:
    """A network with its initial weights, its base model, and the rows (train, val) with base predictions.

    Args as `train_inspector`; `member` is the number in the ensemble.
    """
    with repeatable():
        torch.manual_seed(seed_of(seed, member, START))
        plain = None
        if config.network.plain:
            elsewhere = None if transfer is None else transfer.source.elsewhere(member)
            plain, said = fit_plain(member, preparation, rows[:1], split, elsewhere)
            of_val = plain.predict(rows[1].raw_facts, preparation.facts, preparation.targets, rows[1].jobs)
            doubt = doubt_of(said, rows[0])
            rows = rows[0].with_plain(said), rows[1].with_plain(of_val)
        source = None if transfer is None else transfer.source
        network = new_network(config, preparation, split=None if source is None else source.layer_split)
        if source is not None:
            fill(network, source.states[member % len(source.states)], "the weights to start from")
        if plain is not None:
            network.doubt.copy_(torch.as_tensor(doubt))
        if transfer is None:
            return Transferred(network, "all"), plain, rows
        return prepare_transfer(network, transfer.tune, transfer.ratio), plain, rows


def fit_plain(
    member: int, preparation: Preparation, parts: Sequence[Prepared], split: str, elsewhere: SourceModel | None
) -> tuple[BaseModel, FloatArray]:
    """The base model of a network, and its out-of-fold predictions.

    Networks of an ensemble must differ where they are unsure: all but the first have a bootstrapped base model.
    """
    facts, truth = (np.concatenate([getattr(part, name) for part in parts]) for name in ("raw_facts", "truth"))
    families, jobs = ([each for part in parts for each in getattr(part, name)] for name in ("families", "jobs"))
    count = len(facts)
    drawn = torch.randint(count, (count,)).numpy() if member else np.arange(count)
    folds = folds_of(families if split == "architecture" else (None,) * count, count)
    scales = preparation.facts, preparation.targets
    # Rows that were not drawn are appended without targets, to get out-of-fold predictions too.
    order = np.concatenate([drawn, np.setdiff1d(np.arange(count), drawn)])
    known = np.where(np.arange(len(order))[:, None] < len(drawn), truth[order], np.nan)
    with solver_threads(count):
        plain, held = BaseModel.fit(facts[order], known, folds[order], *scales, elsewhere, [jobs[row] for row in order])
    said = np.zeros(truth.shape)
    said[order] = held
    apart = {job: said[[each == job for each in jobs]].mean(axis=0) for job in jobs if job is not None}
    kept = {job: tuple(round(float(value), DIGITS) for value in values) for job, values in apart.items()}
    return dataclasses.replace(plain, apart=kept), said


def doubt_of(said: FloatArray, rows: Prepared) -> FloatArray:
    """Median absolute error of predictions [n, T] per target; 1 deviation where no value is known."""
    known = rows.mask.numpy() > 0
    errors = np.abs(said - rows.targets.numpy())
    columns = ((errors[there, place], there.any()) for place, there in enumerate(known.T))
    return np.array([max(float(np.median(own)), LEAST_DOUBT) if some else 1.0 for own, some in columns])


def refit_plain(
    member: int,
    preparation: Preparation,
    rows: tuple[Prepared, Prepared],
    split: str,
    seed: int,
    transfer: Transfer | None,
) -> BaseModel:
    """The final base model, fitted to the validation rows too: nothing is left to be chosen by them."""
    with repeatable():
        torch.manual_seed(seed_of(seed, member, AGAIN))
        elsewhere = None if transfer is None else transfer.source.elsewhere(member)
        return fit_plain(member, preparation, rows, split, elsewhere)[0]


def check_source(config: InspectorConfig, split: str, source: Source) -> None:
    """Checks that a transfer keeps the network of its source, and its split.

    A split puts a workload on the same side in all settings. With another split, test workloads might be among the
    training workloads of the source.

    Raises:
        BadInput: the network or the split is another.
    """
    ours, theirs = _structure(config), _structure(source.config)
    # A published checkpoint comes without a grouping recipe and without a scaler of its targets.
    free = ("grouping", "target_scale") if source.preparation is None else ()
    for name, value in ours.items():
        if name not in free and theirs[name] != value:
            raise BadInput(
                f"{name}: the network to start from has {theirs[name]!r}, not {value!r}; a transfer keeps its source's "
                "network, so leave that option out"
            )
    learned_by = source.about.get("split")
    if learned_by not in (None, split):
        raise BadInput(
            f"the inspector to start from learned by the {learned_by} split: workloads of the {split} split's test "
            f"side may be among what it learned from; use --split {learned_by}"
        )


def _structure(config: InspectorConfig) -> dict[str, Any]:
    """The choices that determine the structure of a network."""
    plain = to_plain(config)
    free = ("preset", "ensemble", "training", "start", "dropout", "network")
    return {name: value for name, value in {**plain, **plain["network"]}.items() if name not in free}
