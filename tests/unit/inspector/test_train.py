"""The loop: repeatable, interruptible, masked, and judged in the targets' own units."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import training_work as work

from driple.contracts.errors import BadInput, DripleError
from driple.inspector.data.examples import Examples
from driple.inspector.evaluation.scores import nrmse_within, ranges_of
from driple.inspector.training import initialisation
from driple.inspector.training.train_inspector import train_inspector
from driple.inspector.training.train_network import Epoch
from driple.inspector.training.training_state import read_state


@pytest.fixture(scope="module")
def examples(tmp_path_factory: pytest.TempPathFactory) -> Examples:
    return work.rows(tmp_path_factory.mktemp("datasets"))


def same(one: Any, other: Any) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


class StopAt:
    """Ctrl-C after an epoch."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def __call__(self, member: int, epoch: Epoch) -> None:
        if epoch.number == self.epoch:
            raise KeyboardInterrupt


def test_a_seed_gives_the_same_weights_and_another_seed_others(examples: Examples) -> None:
    config = work.small(dropout=0.2)
    first, again, other = (work.trained(examples, config, seed=seed) for seed in (1, 1, 2))
    assert same(first.fits[0].best, again.fits[0].best)
    assert not same(first.fits[0].best, other.fits[0].best)


def test_training_leaves_random_numbers_of_others_alone(examples: Examples) -> None:
    torch.manual_seed(5)
    wanted = torch.rand(3)
    torch.manual_seed(5)
    work.trained(examples)
    assert torch.equal(torch.rand(3), wanted)
    assert not torch.are_deterministic_algorithms_enabled()


def test_an_interrupted_training_goes_on_to_the_same_end(examples: Examples, tmp_path: Path) -> None:
    config = work.small(dropout=0.2, epochs=6)
    whole = work.trained(examples, config, states=tmp_path / "whole")
    part = work.trained(examples, config, states=tmp_path / "part", watch=StopAt(3))
    assert part.interrupted and not part.inspector.training["finished"]
    assert part.fits[0].epochs == 3
    rest = work.trained(examples, config, states=tmp_path / "part", resume=True)
    assert not rest.interrupted and rest.fits[0].epochs == 6
    assert same(rest.fits[0].best, whole.fits[0].best)
    ends = [
        read_state(tmp_path / name / "member-0.safetensors", _fingerprint(tmp_path / name))
        for name in ("whole", "part")
    ]
    assert ends[0] is not None and ends[1] is not None
    assert same(ends[0].network, ends[1].network) and same(ends[0].optimiser, ends[1].optimiser)


def _fingerprint(folder: Path) -> Any:
    import json

    from safetensors import safe_open

    with safe_open(str(folder / "member-0.safetensors"), framework="pt") as stream:
        return json.loads(stream.metadata()["driple"])["fingerprint"]


def test_a_finished_training_can_be_made_longer(examples: Examples, tmp_path: Path) -> None:
    whole = work.trained(examples, work.small(epochs=5, plain=False))
    work.trained(examples, work.small(epochs=2, plain=False), states=tmp_path)
    longer = work.trained(examples, work.small(epochs=5, plain=False), states=tmp_path, resume=True)
    assert longer.fits[0].epochs == 5 and longer.fits[0].best_epoch > 2
    assert same(longer.fits[0].best, whole.fits[0].best)


def test_to_resume_without_a_state_is_to_begin(examples: Examples, tmp_path: Path) -> None:
    fresh = work.trained(examples)
    assert same(work.trained(examples, states=tmp_path, resume=True).fits[0].best, fresh.fits[0].best)


def test_an_interrupt_before_the_first_epoch_is_an_interrupt(
    examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("driple.inspector.training.epochs.Loop.step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        work.trained(examples)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"seed": 9}, "seed = 0, not 9"),
        ({"split": "random"}, "split = 'architecture', not 'random'"),
        ({"config": work.small(hidden=7)}, "config.network.hidden = 6, not 7"),
    ],
)
def test_a_state_of_another_training_is_refused(
    examples: Examples, tmp_path: Path, options: dict[str, Any], name: str
) -> None:
    work.trained(examples, states=tmp_path)
    with pytest.raises(BadInput, match=name) as caught:
        work.trained(examples, states=tmp_path, resume=True, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"", b"no state at all", b"\x08\0\0\0\0\0\0\0{}      "])
def test_a_damaged_state_is_refused(examples: Examples, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "member-0.safetensors").write_bytes(content)
    with pytest.raises(BadInput, match="without --resume"):
        work.trained(examples, states=tmp_path, resume=True)


def test_the_best_epoch_is_kept_and_its_error_is_that_of_the_predictions(examples: Examples) -> None:
    found = work.trained(examples, work.small(learning_rate=0.05, epochs=8, plain=False))
    fitted = found.fits[0]
    errors = [row["val_nrmse"] for row in fitted.history]
    assert fitted.best_epoch == int(np.argmin(errors)) and fitted.best_error == min(errors)
    assert same(fitted.best, found.inspector.networks[0].state_dict())
    val = examples.side("architecture", "val")
    predicted, _ = found.inspector.predict(val)
    ranges = ranges_of(*(examples.side("architecture", side).targets() for side in ("train", "val")))
    assert nrmse_within(val.targets(), predicted, ranges) == pytest.approx(fitted.best_nrmse, rel=1e-5)


def test_at_the_end_the_plain_model_learns_from_the_validation_rows_too(examples: Examples) -> None:
    items = [
        dataclasses.replace(item, targets=3 * item.targets) if item.split_architecture == "val" else item
        for item in examples.items
    ]
    other = dataclasses.replace(examples, items=tuple(items))
    test = examples.side("architecture", "test")
    config = work.small(epochs=1, learning_rate=1e-12)
    before, after = (work.trained(each, config) for each in (examples, other))
    assert same(before.fits[0].best, after.fits[0].best)
    values, higher = (trained.inspector.predict(test)[0] for trained in (before, after))
    assert np.nanmean(higher / values) > 1.02


def test_the_network_goes_only_so_far_from_the_plain_model(examples: Examples) -> None:
    test = examples.side("architecture", "test")
    far = {}
    for most in (0.05, 50.0):
        found = work.trained(examples, work.small(most_added=most, learning_rate=0.3, epochs=3, watch="loss")).inspector
        preparation = found.preparation
        rows, targets = preparation.apply(test), preparation.targets
        assert found.plains is not None
        plainly = found.plains[0].predict(rows.raw_facts, found.preparation.facts, targets)
        for weight in found.networks[0].parameters():  # as a training that went astray would leave it
            weight.data.add_(1.0)
        far[most] = float(np.nanmax(np.abs(targets.transform(found.predict(test)[0]) - plainly)))
    assert far[0.05] < 0.06 < far[50.0]
    # What the plain model knows well the network moves less than what it does not.
    added = np.abs(targets.transform(found.predict(test)[0]) - plainly)
    doubt = found.networks[0].doubt.numpy()
    assert doubt.min() < 0.8 * doubt[preparation.usable].max()
    assert (added[:, preparation.usable] <= 50.0 * doubt[preparation.usable] + 1e-4).all()
    with pytest.raises(BadInput, match="most_added"):
        work.small(most_added=0.0)


def test_it_learns(examples: Examples) -> None:
    found = work.trained(examples, work.small(plain=False, facts=False, epochs=40, learning_rate=0.01))
    losses = [row["train_loss"] for row in found.fits[0].history]
    assert losses[-1] < 0.5 * losses[0]


def test_patience_ends_it(examples: Examples) -> None:
    fitted = work.trained(examples, work.small(epochs=60, patience=2, learning_rate=0.3, clip=0.0)).fits[0]
    assert fitted.epochs == fitted.best_epoch + 2 < 60


def test_watch_loss_decides_by_the_loss(examples: Examples) -> None:
    fitted = work.trained(examples, work.small(watch="loss", epochs=6, learning_rate=0.05)).fits[0]
    assert fitted.best_error == min(row["val_loss"] for row in fitted.history)


def test_targets_that_nobody_knows_are_not_learned_and_not_predicted(examples: Examples) -> None:
    found = work.trained(examples, work.small(plain=False, epochs=3))
    unknown = [3, 4, 5]  # the made-up zoo has no GPU memory
    values, _ = found.inspector.predict(examples)
    assert np.isnan(values[:, unknown]).all()
    assert not np.isnan(np.delete(values, unknown, axis=1)).any()
    plain = work.trained(examples, work.small(plain=False, weight_decay=0.0, epochs=1)).inspector.networks[0].mlp[-1]
    longer = work.trained(examples, work.small(plain=False, weight_decay=0.0, epochs=3)).inspector.networks[0].mlp[-1]
    assert torch.equal(plain.weight[unknown], longer.weight[unknown])


def test_errors_that_are_no_numbers_end_it_with_the_best_before(examples: Examples) -> None:
    found = work.trained(examples, work.small(learning_rate=1e30, clip=0.0, epochs=5))
    assert found.fits[0].diverged
    assert math.isfinite(found.fits[0].best_error)
    assert not np.isnan(found.inspector.predict(examples)[0][:, 0]).any()


def test_outputs_that_are_no_numbers_from_the_start_are_an_error(
    examples: Examples, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "driple.inspector.training.epochs.Loop._outputs",
        lambda self, batches: torch.full((len(list(batches)), 12), math.nan),
    )
    monkeypatch.setattr("driple.inspector.training.epochs._loss", lambda *_: math.nan)
    with pytest.raises(DripleError, match="--set target_scale=log"):
        work.trained(examples)


def test_batches_in_the_order_of_the_dataset_if_asked(examples: Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    from driple.inspector.data.tensors import Prepared

    orders: list[list[int]] = []
    batches = Prepared.batches

    def seen(self: Prepared, order: Any, size: int, *rest: Any) -> Any:
        if size == 8:
            orders.append(list(order))
        return batches(self, order, size, *rest)

    monkeypatch.setattr(Prepared, "batches", seen)
    count = len(examples.side("architecture", "train"))
    work.trained(examples, work.small(shuffle=False))
    assert orders == [list(range(count))]  # made once
    orders.clear()
    work.trained(examples, work.small(shuffle=True))
    assert len(orders) == 4 and all(sorted(order) == list(range(count)) for order in orders)
    assert orders[0] != orders[1]


def test_an_ensemble_has_networks_of_its_own_and_a_spread(examples: Examples) -> None:
    found = work.trained(examples, work.small(ensemble=3, plain=False))
    assert len(found.inspector.networks) == 3
    assert not same(found.fits[0].best, found.fits[1].best)
    values, spread = found.inspector.predict(examples)
    assert spread is not None and spread.shape == values.shape
    assert (spread[:, 0] > 0).all() and np.isnan(spread[:, 3]).all()
    assert found.inspector.calibration is not None and len(found.inspector.calibration) == 12


def test_an_interrupted_ensemble_keeps_the_networks_so_far_and_goes_on(examples: Examples, tmp_path: Path) -> None:
    def second(member: int, epoch: Epoch) -> None:
        if member == 1 and epoch.number == 2:
            raise KeyboardInterrupt

    config = work.small(ensemble=3, plain=False)
    found = work.trained(examples, config, watch=second, states=tmp_path)
    assert found.interrupted and len(found.inspector.networks) == 2
    rest = work.trained(examples, config, states=tmp_path, resume=True)
    assert not rest.interrupted and rest.inspector.training["finished"]
    whole = work.trained(examples, config)
    for one, other in zip(rest.fits, whole.fits, strict=True):
        assert same(one.best, other.best)


def test_an_interrupt_between_two_networks_keeps_the_first(examples: Examples, monkeypatch: pytest.MonkeyPatch) -> None:
    from driple.inspector.training import train_inspector as learn

    begin = initialisation.start

    def pressed(member: int, *rest: Any) -> Any:
        if member == 1:
            raise KeyboardInterrupt
        return begin(member, *rest)

    monkeypatch.setattr(learn, "start", pressed)
    found = work.trained(examples, work.small(ensemble=2))
    assert found.interrupted and len(found.inspector.networks) == 1


def test_nothing_to_predict(examples: Examples) -> None:
    values, spread = work.trained(examples, work.small(epochs=1)).inspector.predict([])
    assert values.shape == (0, 12) and spread is None


def test_one_prediction_is_that_of_many(examples: Examples) -> None:
    inspector = work.trained(examples).inspector
    item = examples.items[4]
    values, _ = inspector.predict(examples)
    alone, spread = inspector.predict([item])
    assert spread is None
    assert np.allclose(alone[0], values[4], rtol=1e-5, equal_nan=True)


def test_the_paper_preset_trains_on_small_groups(examples: Examples) -> None:
    import dataclasses

    from driple.inspector.model.model_config import PRESETS, changed

    config = dataclasses.replace(changed(PRESETS["paper"], epochs=2, hidden=6), grouping="uniform:4")
    found = train_inspector(examples, config)
    assert found.fits[0].epochs == 2
    assert found.inspector.plains is None
