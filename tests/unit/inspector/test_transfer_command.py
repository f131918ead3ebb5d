"""Transfer from end to end: where it starts, what it keeps, what it is compared with."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import training_work as work
from safetensors import safe_open

from driple.contracts.errors import BadInput
from driple.contracts.formats.dataset import SIDES
from driple.contracts.installed_data import installed_data
from driple.inspector.data.examples import Examples, job_of
from driple.inspector.model.inspector_folder import load, save
from driple.inspector.model.model_config import PRESETS, changed
from driple.inspector.training.initialisation import Transfer
from driple.inspector.training.scratch_comparison import compare, to_text
from driple.inspector.training.train_inspector import Trained, train_inspector
from driple.inspector.training.train_network import Fitted
from driple.inspector.training.transfer_source import Source, find_source

OTHER = "cpu-p2w2-1g"


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return work.rows(tmp_path_factory.mktemp("datasets"))


@pytest.fixture(scope="module")
def first(examples: Examples) -> Trained:
    return work.trained(examples, work.small(ensemble=2, epochs=6))


@pytest.fixture
def inspectors(tmp_path: Path, first: Trained) -> Path:
    save(tmp_path / first.inspector.setting, first.inspector)
    return tmp_path


@pytest.fixture
def source(inspectors: Path, first: Trained) -> Source:
    return find_source(first.inspector.setting, inspectors, OTHER, "worker")


def elsewhere(examples: Examples) -> Examples:
    """The same workloads on a setting that takes twice as long."""
    items = tuple(dataclasses.replace(item, targets=2 * item.targets) for item in examples.items)
    return dataclasses.replace(examples, setting=OTHER, items=items, sha256="other")


def test_the_inputs_are_seen_as_the_source_sees_them(examples: Examples, source: Source) -> None:
    assert source.preparation is not None
    found = train_inspector(elsewhere(examples), source.config, transfer=Transfer(source=source)).inspector
    assert found.preparation.features == source.preparation.features
    assert found.preparation.facts == source.preparation.facts
    assert found.preparation.targets != source.preparation.targets
    assert found.transferred_from is not None and found.transferred_from["from"] == examples.setting


def test_a_source_is_judged_without_what_it_learned_of_the_same_jobs(examples: Examples, source: Source) -> None:
    assert source.plains is not None
    sides = {side: {job_of(item) for item in examples.side("architecture", side).items} for side in SIDES}
    for plain in source.plains:
        assert plain.apart.keys() == sides["train"] | sides["val"]
        assert not plain.apart.keys() & sides["test"]

    def first_error(source: Source) -> float:
        transfer = Transfer(source=source)
        config = changed(source.config, ensemble=1, epochs=1)
        return train_inspector(elsewhere(examples), config, transfer=transfer).fits[0].history[0]["val_nrmse"]

    def told_of(jobs: set[str | None]) -> Source:
        """A source that says great nonsense of these jobs, where it is asked without what it learned of them."""
        assert source.plains is not None
        plains = [
            dataclasses.replace(
                plain, apart={job: (9.0,) * len(said) if job in jobs else said for job, said in plain.apart.items()}
            )
            for plain in source.plains
        ]
        return dataclasses.replace(source, plains=tuple(plains))

    assert first_error(told_of(sides["val"])) > 1.5 * first_error(source)


def test_each_network_says_of_every_training_row_what_it_knows_without_its_family(examples: Examples) -> None:
    """Also of rows that its draw left out: their families are in the draw."""
    found = work.trained(examples, work.small(ensemble=3, epochs=1)).inspector
    assert found.plains is not None
    rows = [item for item in examples.items if item.split_architecture != "test"]
    prepared = found.preparation.apply(rows)
    for plain in found.plains:
        apart = np.array([plain.apart[job or ""] for job in prepared.jobs])
        said = plain.predict(prepared.raw_facts, found.preparation.facts, found.preparation.targets)
        known = prepared.mask.numpy() > 0
        assert (apart != said)[known].mean() > 0.95


def test_conditions_of_the_network_are_part_of_a_job_and_the_setting_is_not(examples: Examples) -> None:
    item = examples.items[0]

    def like(**others: object) -> str | None:
        return job_of(dataclasses.replace(item, workload={**item.workload, **others}))

    assert like() == job_of(item) == like(placement="x", threads=7)
    assert len({like(), like(network_rate_mbit=10.0), like(batch_size=12345)}) == 3
    assert like(model=None) == item.graph_key


def test_a_training_does_not_go_on_from_a_source_that_was_trained_anew(
    examples: Examples, source: Source, first: Trained, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"states": tmp_path / "states"}
    config = changed(source.config, ensemble=1, epochs=2)
    train_inspector(elsewhere(examples), config, transfer=Transfer(source=source), **options)
    again = work.trained(examples, work.small(ensemble=2, epochs=6), seed=9).inspector
    save(tmp_path / "again" / again.setting, again)
    other = find_source(again.setting, tmp_path / "again", OTHER, "worker")
    with pytest.raises(BadInput, match="had transfer.weights_sha256"):
        train_inspector(elsewhere(examples), config, transfer=Transfer(source=other), resume=True, **options)


@pytest.mark.parametrize("tune", ["half", "mlp", "gru", "all"])
def test_what_is_frozen_stays_and_the_rest_is_tuned(
    examples: Examples, source: Source, tune: str, tmp_path: Path
) -> None:
    found = train_inspector(
        elsewhere(examples),
        changed(source.config, ensemble=1, epochs=3),
        transfer=Transfer(source=source, tune=tune),
        states=tmp_path / "states",
    )
    before, after = source.states[0], found.fits[0].history
    assert len(after) == 4
    # Of the last epoch: the best may be the one before the first, which is the source's.
    with safe_open(str(tmp_path / "states/member-0.safetensors"), framework="pt") as stream:
        state = {
            key.partition(".")[2]: stream.get_tensor(key) for key in list(stream.keys()) if key.startswith("network.")
        }
    frozen = {"half": "layers.0.", "mlp": "readout.", "gru": "project.", "all": ""}[tune]
    if frozen:
        names = [name for name in before if name.startswith(frozen)]
        assert names and all(torch.equal(state[name], before[name]) for name in names)
    assert not torch.equal(state["mlp.0.bias"], before["mlp.0.bias"])
    save(tmp_path / "moved", found.inspector)
    again = load(tmp_path / "moved")
    assert again.networks[0].split == (0.5 if tune == "half" else None)
    wanted, read = found.inspector.predict(examples)[0], again.predict(examples)[0]
    assert torch.equal(torch.as_tensor(wanted).nan_to_num(), torch.as_tensor(read).nan_to_num())


def test_a_source_that_learned_from_rows_it_would_be_judged_on_is_refused(examples: Examples, source: Source) -> None:
    with pytest.raises(BadInput, match="use --split architecture"):
        train_inspector(examples, source.config, split="random", transfer=Transfer(source=source))
    with pytest.raises(BadInput, match="use --split architecture"):  # another setting, and the same workloads
        train_inspector(elsewhere(examples), source.config, split="random", transfer=Transfer(source=source))


def test_a_transfer_goes_on_after_an_interrupt(examples: Examples, source: Source, tmp_path: Path) -> None:
    config = changed(source.config, ensemble=1, epochs=4, learning_rate=0.02)
    options: dict[str, Any] = {"transfer": Transfer(source=source)}

    def stop(member: int, epoch: Any) -> None:
        if epoch.number == 2:
            raise KeyboardInterrupt

    whole = train_inspector(elsewhere(examples), config, **options)
    train_inspector(elsewhere(examples), config, states=tmp_path, watch=stop, **options)
    rest = train_inspector(elsewhere(examples), config, states=tmp_path, resume=True, **options)
    errors = [[row["val_loss"] for row in found.fits[0].history] for found in (whole, rest)]
    assert errors[0] == errors[1] and len(errors[0]) == 5


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ({"hidden": 9}, "hidden: the network to start from has 6, not 9"),
        ({"layer": "gcn"}, "layer: the network to start from has 'gin'"),
        ({"features": "paper"}, "features: the network to start from has 'driple'"),
        ({"grouping": "sqrt"}, "grouping: the network to start from has 'uniform:4'"),
    ],
)
def test_another_kind_of_network_is_refused(
    examples: Examples, source: Source, choice: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message):
        train_inspector(examples, changed(source.config, **choice), transfer=Transfer(source=source))


# Where it starts.


def test_a_setting_a_folder_and_its_file_name_the_same_source(inspectors: Path, first: Trained) -> None:
    name = first.inspector.setting
    for text in (name, "CPU-P1w2/ho-1G", str(inspectors / name), str(inspectors / name / "inspector.json")):
        found = find_source(text, inspectors, OTHER, "worker")
        assert found.about["from"] == name
        assert len(found.states) == 2


def test_a_source_is_also_found_in_the_usual_folder_and_among_the_installed(
    inspectors: Path, first: Trained, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    here, name, installed = tmp_path_factory.mktemp("here"), first.inspector.setting, installed_data("inspectors")
    assert installed is not None
    monkeypatch.chdir(here)
    assert find_source("cpu-p1w1-1g", inspectors, OTHER, "worker").folder == installed / "cpu-p1w1-1g"
    (here / "rt" / name).mkdir(parents=True)
    shutil.copytree(inspectors / name, here / "inspectors" / name)
    assert find_source(name, here / "rt", OTHER, "worker").folder == Path("inspectors") / name
    assert find_source(name, inspectors, OTHER, "worker").folder == inspectors / name


def test_a_source_that_is_not_there(inspectors: Path) -> None:
    with pytest.raises(BadInput, match="there are: cpu-p1w2-1g"):
        find_source("v100-p1w2-pcie", inspectors, OTHER, "worker")
    with pytest.raises(BadInput, match="no such file or folder, and no setting"):
        find_source("nowhere", inspectors, OTHER, "worker")


def test_a_setting_that_nobody_asked_for_is_refused_unless_allowed(inspectors: Path, first: Trained) -> None:
    name = first.inspector.setting
    shutil.copytree(inspectors / name, inspectors / "v100-p1w2-pcie")
    shutil.copytree(inspectors / name, inspectors / "mine")
    for text, setting, role, message in (
        ("v100-p1w2-pcie", OTHER, "worker", "the folder says v100-p1w2-pcie, its inspector is of cpu-p1w2-1g"),
        (str(inspectors / "mine"), OTHER, "worker", "which the folder's name does not say"),
        (str(inspectors / name), OTHER, "ps", "an inspector of role worker, not ps"),
        (name, "v100-p1w2-1g", "worker", "between CPUs and GPUs"),
    ):
        with pytest.raises(BadInput, match=message) as caught:
            find_source(text, inspectors, setting, role)
        assert "--set transfer.allow_other_setting=true" in str(caught.value) and "\n" not in str(caught.value)
        assert find_source(text, inspectors, setting, role, allow_other=True).about["from"] == name
    assert find_source(str(inspectors / "mine"), inspectors, name, "worker").about["from"] == name


def test_a_published_checkpoint_is_a_source_of_the_paper_preset(examples: Examples, tmp_path: Path) -> None:
    from driple.inspector.model.published_checkpoint import OUR_NAME
    from driple.inspector.network.graph_network import Network

    torch.manual_seed(0)
    ours = Network(PRESETS["paper"].network, 3, 0).state_dict()
    torch.save({theirs: ours[name] for theirs, name in OUR_NAME.items()}, tmp_path / "published.pkl")
    found = find_source(str(tmp_path / "published.pkl"), tmp_path, OTHER, "worker")
    config = dataclasses.replace(changed(found.config, epochs=1), grouping="uniform:4")
    moved = train_inspector(examples, config, transfer=Transfer(source=found, tune="mlp"))
    assert moved.inspector.transferred_from == {
        "from": "published.pkl",
        "provenance": "published",
        "tune": "mlp",
        "ratio": 0.5,
    }
    (tmp_path / "other.pkl").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(BadInput):
        find_source(str(tmp_path / "other.pkl"), tmp_path, OTHER, "worker")


# Against training from scratch.


def fitted(*errors: float, each_s: float = 1.0, before: float = 0.0) -> Fitted:
    rows = [{"val_nrmse": error, "seconds": each_s * (place + 1)} for place, error in enumerate(errors)]
    best = errors.index(min(errors))
    return Fitted({}, rows, best, min(errors), each_s * len(errors), before=before)


def test_times_are_compared_at_the_error_that_both_reach() -> None:
    found = compare([fitted(0.2, 0.1, 0.15, before=3.0)], [fitted(0.5, 0.4, 0.3, 0.12, each_s=10.0, before=2.5)])
    assert found["equal_val_nrmse"] == 0.12
    assert (found["seconds_to_equal"], found["scratch_seconds_to_equal"]) == (2.0, 40.0)
    assert found["times_faster"] == 20.0
    assert found["times_faster_with_before"] == 42.5 / 5.0
    assert "2.00 s of epochs against 40.00 s (20.0x)" in to_text(found)
    assert "5.00 s against 42.50 s (8.5x)" in to_text(found)


def test_networks_of_an_ensemble_are_compared_one_by_one() -> None:
    easy, hard = (fitted(0.2, 0.1), fitted(0.3, 0.2, 0.12)), (fitted(0.9, 0.8), fitted(1.0, 0.9, 0.85, 0.82))
    found = compare([easy[0], hard[0]], [easy[1], hard[1]])
    assert found["equal_val_nrmse"] == pytest.approx((0.12 + 0.82) / 2)
    assert (found["seconds_to_equal"], found["scratch_seconds_to_equal"]) == (2.0 + 2.0, 3.0 + 4.0)
