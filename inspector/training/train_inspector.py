"""Trains an inspector on examples.

examples = read_examples(Path("datasets"), "v100-p1w2-pcie")
trained = train_inspector(examples, preset("driple"), seed=0)
values, spread = trained.inspector.predict(examples.side("architecture", "test"))
save(Path("inspectors/v100-p1w2-pcie"), trained.inspector)
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import scipy.linalg  # noqa: F401
import scipy.optimize  # noqa: F401  loaded before the clock runs

from driple.contracts.formats.inspector import state_name
from driple.contracts.json_values import to_plain
from driple.inspector.base_model.stacked_regressor import BaseModel
from driple.inspector.data.examples import Examples, enough
from driple.inspector.data.node_features import Featuriser
from driple.inspector.data.tensors import Preparation
from driple.inspector.evaluation.calibration import factors
from driple.inspector.model.inspector_folder import versions
from driple.inspector.model.inspector_model import InspectorModel
from driple.inspector.model.model_config import InspectorConfig
from driple.inspector.training.epochs import Loop
from driple.inspector.training.initialisation import Transfer, check_source, refit_plain, start
from driple.inspector.training.interrupts import DeferredInterrupt
from driple.inspector.training.seeds import seed_of
from driple.inspector.training.threads import suited, torch_threads
from driple.inspector.training.train_network import Epoch, Fitted, fit
from driple.inspector.training.transfer_source import provenance_after

MemberWatch = Callable[[int, Epoch], None]
"""Receives the number of a network and its epoch."""


@dataclass(frozen=True, eq=False)
class Trained:
    """An inspector, and how its networks were fitted."""

    inspector: InspectorModel
    fits: tuple[Fitted, ...]
    interrupted: bool
    """Ctrl-C came: the last network is the best so far, and later ones may be missing."""

    @property
    def seconds(self) -> float:
        return sum(fitted.seconds for fitted in self.fits)


def train_inspector(
    examples: Examples,
    config: InspectorConfig,
    *,
    split: str = "architecture",
    seed: int = 0,
    device: str = "cpu",
    execution: str = "auto",
    transfer: Transfer | None = None,
    watch: MemberWatch | None = None,
    states: Path | None = None,
    resume: bool = False,
    featuriser: Featuriser | None = None,
    threads: int | None = None,
) -> Trained:
    """Trains on the training side of a split; the validation side decides when to stop.

    Args:
        examples: of a setting and role.
        config: every choice; with a transfer that of the source, but for its training options.
        split: `architecture` or `random`.
        seed: the same seed, examples, options, number of threads and machine give the same weights.
        device: `cpu` or `cuda`.
        execution: how neighbours are summed.
        transfer: the source to start from.
        watch: receives every epoch.
        states: folder for states to resume from.
        resume: continue from these.
        featuriser: one that has grouped these graphs in this way before.
        threads: of torch; None: as suits the network.

    Raises:
        BadInput: too little to learn from, a state of another training, or a transfer from another kind of network.
    """
    if transfer is not None:  # a transfer keeps its source's network, and so its outputs
        examples = examples.select(transfer.source.columns)
    enough(examples, split)
    train, val = examples.side(split, "train"), examples.side(split, "val")
    if transfer is not None:
        check_source(config, split, transfer.source)
    if transfer is not None and transfer.source.preparation is not None:
        preparation = transfer.source.preparation.for_targets_of(train)
    else:
        preparation = Preparation.fit(train, config, featuriser)
    rows = preparation.apply(train), preparation.apply(val)
    if threads is None:
        at_once = min(config.training.batch_size, len(train))
        threads = suited(nodes=at_once * sum(rows[0].sizes()) // len(train), hidden=config.network.hidden)
    fits: list[Fitted] = []
    networks: list[Any] = []
    begun_plains: list[BaseModel | None] = []
    interrupted = False
    for member in range(config.ensemble):
        about = _fingerprint(examples, config, split, seed, member, transfer, execution)
        try:
            with torch_threads(threads):
                began = time.perf_counter()
                learner, plain, sides = start(member, config, preparation, rows, split, seed, transfer)
                before = time.perf_counter() - began
                where: dict[str, Any] = {"execution": execution, "device": device, "fingerprint": about}
                loop = Loop(learner, *sides, config.training, preparation, seed=seed_of(seed, member), **where)
                state_file = None if states is None else states / state_name(member)
                fitted = fit(loop, None if watch is None else partial(watch, member), state_file, resume)
        except KeyboardInterrupt:
            if not fits:
                raise
            interrupted = True
            break
        fits.append(dataclasses.replace(fitted, before=before))
        networks.append(learner.network)
        begun_plains.append(plain)
        if fitted.interrupted:
            interrupted = True
            break
    inspector = InspectorModel(
        setting=examples.setting,
        role=examples.role,
        split=split,
        seed=seed,
        config=config,
        preparation=preparation,
        networks=tuple(networks),
        plains=tuple(plain for plain in begun_plains if plain is not None) or None,
        provenance=provenance_after(examples.provenance, None if transfer is None else transfer.source),
        dataset_sha256=examples.sha256,
        transferred_from=None if transfer is None else transfer.to_plain(),
        training=_summary(fits, finished=not interrupted),
        versions=versions(),
    )
    with DeferredInterrupt() as ctrl_c:  # else what was learned would be lost for the sake of seconds
        inspector = _calibrated(inspector, val, execution)
        if inspector.plains is not None:
            plains = (refit_plain(member, preparation, rows, split, seed, transfer) for member in range(len(fits)))
            inspector = dataclasses.replace(inspector, plains=tuple(plains))
    return Trained(inspector, tuple(fits), interrupted or ctrl_c.came)


def _calibrated(inspector: InspectorModel, val: Examples, execution: str) -> InspectorModel:
    values, spread = inspector.predict(val, execution, judged=True)
    if spread is None:
        return inspector
    return dataclasses.replace(inspector, calibration=factors(val.targets(), values, spread))


def _fingerprint(
    examples: Examples,
    config: InspectorConfig,
    split: str,
    seed: int,
    member: int,
    transfer: Transfer | None,
    execution: str,
) -> Mapping[str, Any]:
    """Values that a resumed state must agree with; epochs and ensemble may grow."""
    plain = to_plain(config)
    for name in ("epochs", "patience"):
        del plain["training"][name]
    for name in ("preset", "ensemble"):
        del plain[name]
    return {
        "setting": examples.setting,
        "role": examples.role,
        "split": split,
        "seed": seed,
        "network": member,
        "dataset": examples.sha256,
        "transfer": None if transfer is None else transfer.to_plain(),
        "execution": execution,
        "config": plain,
    }


def _summary(fits: list[Fitted], *, finished: bool) -> dict[str, Any]:
    return {
        "epochs": [fitted.epochs for fitted in fits],
        "best_epochs": [fitted.best_epoch for fitted in fits],
        "val_nrmse": [fitted.best_nrmse for fitted in fits],
        "seconds": round(sum(fitted.seconds for fitted in fits), 3),
        "finished": finished,
    }
