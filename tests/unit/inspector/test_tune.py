"""The search: goes on where it was, and leaves alone what was chosen."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import training_work as work

from driple.contracts.errors import BadInput, DripleError
from driple.inspector.data.examples import Examples
from driple.inspector.model.model_config import PRESETS
from driple.inspector.training import tune
from driple.inspector.training.train_inspector import train_inspector
from driple.inspector.training.tune import search

optuna = pytest.importorskip("optuna")
FEW = ("layer", "gru", "depth", "readout", "mlp_layers", "dropout", "grouping", "batch_size", "weight_decay")
"""Options that stay, so that hidden size and learning rate are searched."""


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return work.rows(tmp_path_factory.mktemp("datasets"))


def run(examples: Examples, storage: Path, trials: int, **options: Any) -> tune.Best:
    base = work.small(epochs=2, plain=False)
    return search(examples, base, trials, split="architecture", storage=storage, fixed=FEW, **options)


def test_trials_count_together_over_several_searches(examples: Examples, tmp_path: Path) -> None:
    said: list[str] = []
    first = run(examples, tmp_path / "tune.db", 2, say=said.append)
    assert first.trials == len(said) == 2
    again = run(examples, tmp_path / "tune.db", 2, say=said.append)
    assert again == first and len(said) == 2
    more = run(examples, tmp_path / "tune.db", 3, say=said.append)
    assert more.trials == len(said) == 3
    assert more.val_nrmse <= first.val_nrmse


def test_a_trial_is_the_training_that_its_options_would_have(examples: Examples, tmp_path: Path) -> None:
    best = run(examples, tmp_path / "tune.db", 2)
    learned = train_inspector(examples, best.config).fits[0].history[1:]
    assert min(row["val_nrmse"] for row in learned) == best.val_nrmse


def test_trials_that_diverge_at_once_are_given_up(examples: Examples, tmp_path: Path) -> None:
    said: list[str] = []
    base = work.small(epochs=2, plain=False, learning_rate=1e30, clip=0.0)
    with pytest.raises(DripleError, match="no trial of the search came to an end"):
        search(
            examples,
            base,
            2,
            split="architecture",
            storage=tmp_path / "tune.db",
            fixed={*FEW, "learning_rate"},
            say=said.append,
        )
    assert len(said) == 2 and all("given up" in line for line in said)


def test_only_what_was_not_chosen_is_searched(examples: Examples, tmp_path: Path) -> None:
    best = run(examples, tmp_path / "tune.db", 2)
    assert best.choices.keys() == {"hidden", "learning_rate"}
    assert best.config.network.hidden == best.choices["hidden"]
    assert best.config.training.learning_rate == best.choices["learning_rate"]
    assert best.config.network.layer == work.SMALL.network.layer
    assert best.config.grouping == work.SMALL.grouping


def test_a_search_of_something_else_is_not_gone_on_with(examples: Examples, tmp_path: Path) -> None:
    said: list[str] = []
    run(examples, tmp_path / "tune.db", 1, say=said.append)
    run(examples, tmp_path / "tune.db", 1, say=said.append, seed=1)
    assert len(said) == 2


def test_an_interrupted_search_goes_on(examples: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def interrupted(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return train_inspector(*arguments, **options)

    monkeypatch.setattr(tune, "train_inspector", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(examples, tmp_path / "tune.db", 3)
    assert run(examples, tmp_path / "tune.db", 3).trials == 3
    assert len(calls) == 4  # the interrupted trial did not count


def test_a_trial_whose_process_was_killed_does_not_count(examples: Examples, tmp_path: Path) -> None:
    run(examples, tmp_path / "tune.db", 1)
    (name,) = optuna.get_all_study_names(f"sqlite:///{tmp_path / 'tune.db'}")
    study = optuna.load_study(study_name=name, storage=f"sqlite:///{tmp_path / 'tune.db'}")
    study.ask()
    assert run(examples, tmp_path / "tune.db", 2).trials == 2
    states = [trial.state.name for trial in study.get_trials()]
    assert sorted(states) == ["COMPLETE", "COMPLETE", "FAIL"]


def test_a_file_that_is_no_search_is_refused(examples: Examples, tmp_path: Path) -> None:
    (tmp_path / "tune.db").write_text("no database")
    with pytest.raises(BadInput, match="remove it"):
        run(examples, tmp_path / "tune.db", 1)


def test_without_optuna_it_says_how_to_get_it(
    examples: Examples, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(BadInput, match=r"driple\[tune\]"):
        run(examples, tmp_path / "tune.db", 1)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_point_of_the_space_is_a_config(name: str) -> None:
    from driple.inspector.model.model_config import changed
    from driple.inspector.network.depth import depends_on_graph, depth

    base = PRESETS[name]
    space = {**tune.SPACE, **({"depth": tune.DEEP} if depends_on_graph(base.network.depth) else {})}
    for option, choices in space.items():
        for choice in choices:
            config = changed(base, **{option: choice})
            assert depth(config.network.depth, 20) >= 1
    for option, (low, high) in tune.RANGES.items():
        assert low < high
        changed(base, **{option: low})
