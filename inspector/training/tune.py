"""Hyper-parameter search with Optuna. Trials are stored in one file, so that a search can be continued.

A trial trains one network; its score is the best validation NRMSE. Trials that are worse than most at the same epoch
are pruned. Options that the user set are not searched.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from driple.contracts.errors import BadInput, DripleError
from driple.contracts.json_values import content_hash, to_plain
from driple.inspector.data.examples import Examples, enough
from driple.inspector.data.node_features import Featuriser
from driple.inspector.model.model_config import InspectorConfig, changed
from driple.inspector.network.depth import depends_on_graph
from driple.inspector.training.seeds import seed_of
from driple.inspector.training.train_inspector import train_inspector
from driple.inspector.training.train_network import Epoch

SPACE_VERSION = 2
"""Version of SPACE and of a trial; a search of another version is not continued."""
GIVEN_UP_FROM = 20
"""Epochs before a trial can be pruned."""
LOOKED_AT_EVERY = 5
"""Epochs between two reports to Optuna, each of which is written to the file."""

Choices = tuple[Any, ...]
SPACE: Mapping[str, Choices] = {
    "layer": ("gin", "gcn", "gat", "mpnn", "pna"),
    "gru": ("off", "state"),
    "depth": ("1", "2", "3", "4", "6"),
    "readout": ("cost", "mean", "max", "attention", "set2set"),
    "hidden": (16, 32, 64),
    "mlp_layers": (1, 2, 3),
    "dropout": (0.0, 0.1, 0.2),
    "grouping": ("uniform:10", "uniform:20", "uniform:50"),
    "batch_size": (8, 16, 32, 64),
}
DEEP: Choices = ("1", "3", "log2N", "sqrtN", "N/3", "N/2")
"""Depths of a network whose layers share weights."""
RANGES: Mapping[str, tuple[float, float]] = {"learning_rate": (3e-4, 1e-2), "weight_decay": (1e-6, 1e-2)}
"""Searched on a logarithmic scale."""


@dataclass(frozen=True)
class Best:
    """The result of a search."""

    config: InspectorConfig
    choices: Mapping[str, Any]
    """Values that were searched."""
    val_nrmse: float
    trials: int


def search(
    examples: Examples,
    base: InspectorConfig,
    trials: int,
    *,
    split: str,
    storage: Path,
    seed: int = 0,
    fixed: Collection[str] = (),
    say: Callable[[str], None] | None = None,
    **machine: Any,
) -> Best:
    """Searches until there are enough trials.

    Args as `train_inspector`, and:
        base: values of the options that are not searched.
        trials: the total, with those of earlier searches in `storage`.
        fixed: names of options that are not searched.
        say: receives a line per trial.
        machine: device, execution and threads, as `train_inspector`.

    Raises:
        BadInput: optuna is not installed, the file is not a search, or there are too few rows.
        DripleError: no trial finished.
    """
    optuna = _optuna()
    enough(examples, split)
    space = {name: choices for name, choices in SPACE.items() if name not in fixed}
    if depends_on_graph(base.network.depth) and "depth" in space:
        space["depth"] = DEEP
    ranges = {name: bounds for name, bounds in RANGES.items() if name not in fixed}
    about = {"dataset": examples.sha256, "role": examples.role, "split": split, "seed": seed, "base": to_plain(base)}
    about |= {"space": {name: list(choices) for name, choices in space.items()}, "ranges": sorted(ranges)}
    study = _study(optuna, storage, content_hash(about, SPACE_VERSION), seed)
    done = _done(optuna, study)
    featurisers: dict[str, Featuriser] = {}

    def objective(trial: Any) -> float:
        chosen = {name: trial.suggest_categorical(name, list(choices)) for name, choices in space.items()}
        chosen |= {name: trial.suggest_float(name, *bounds, log=True) for name, bounds in ranges.items()}
        config = dataclasses.replace(changed(base, **chosen), ensemble=1)
        if config.grouping not in featurisers:
            recipe = examples.side(split, "train").recipe(config.grouping)  # as in `train_inspector`
            featurisers[config.grouping] = Featuriser(config.features, recipe, config.loops)

        def watch(_: int, epoch: Epoch) -> None:
            if epoch.number % LOOKED_AT_EVERY == 0:
                trial.report(epoch.row["val_nrmse"], epoch.number)
                if epoch.number >= GIVEN_UP_FROM and trial.should_prune():
                    raise optuna.TrialPruned

        once = featurisers[config.grouping]
        found = train_inspector(examples, config, split=split, seed=seed, watch=watch, featuriser=once, **machine)
        if found.interrupted:
            raise KeyboardInterrupt
        # Without the epoch before the first: with a base model all trials are alike there.
        learned = found.fits[0].history[1:]
        if not learned:  # the loss was NaN in the first epoch
            raise optuna.TrialPruned
        return min(row["val_nrmse"] for row in learned)

    def told(study: Any, trial: Any) -> None:
        if say is not None:
            value = "given up" if trial.state.name == "PRUNED" else f"{100 * (trial.value or 0):.2f} %"
            best = f"{100 * study.best_value:.2f} %" if _complete(optuna, study) else "none yet"
            say(f"trial {len(_done(optuna, study))}/{trials}: validation NRMSE {value} (best: {best})")

    if len(done) < trials:
        study.optimize(objective, n_trials=trials - len(done), callbacks=[told])
    if not _complete(optuna, study):
        raise DripleError("no trial of the search came to an end")
    choices = dict(study.best_params)
    return Best(changed(base, **choices), choices, study.best_value, len(_done(optuna, study)))


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise BadInput("--tune needs optuna: pip install 'driple[tune]'") from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _study(optuna: Any, storage: Path, name: str, seed: int) -> Any:
    storage.parent.mkdir(parents=True, exist_ok=True)
    try:
        study = optuna.create_study(study_name=name, storage=_url(storage), load_if_exists=True, direction="minimize")
        for trial in study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)):
            study.tell(trial.number, state=optuna.trial.TrialState.FAIL)  # its process is gone
    except Exception as error:  # the database raises many kinds for a file of another format
        raise BadInput(f"{storage}: not a search that can be continued ({type(error).__name__}); remove it") from None
    # Another seed for each part of an interrupted search: the same seed would repeat its trials.
    study.sampler = optuna.samplers.TPESampler(seed=seed_of(seed, len(study.get_trials(deepcopy=False))))
    study.pruner = optuna.pruners.MedianPruner(n_startup_trials=5, n_warmup_steps=GIVEN_UP_FROM)
    return study


def _url(storage: Path) -> str:
    """The URL of the database, with special characters of the path quoted."""
    from sqlalchemy.engine import URL

    return str(URL.create("sqlite", database=str(storage)).render_as_string(hide_password=False))


def _done(optuna: Any, study: Any) -> list[Any]:
    states = (optuna.trial.TrialState.COMPLETE, optuna.trial.TrialState.PRUNED)
    return list(study.get_trials(deepcopy=False, states=states))


def _complete(optuna: Any, study: Any) -> bool:
    return bool(study.get_trials(deepcopy=False, states=(optuna.trial.TrialState.COMPLETE,)))
