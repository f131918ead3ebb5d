"""Splits are fixed, leak-free and near the shares they promise."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from driple.contracts.formats.dataset import SIDES, TEST, TRAIN, VAL
from driple.contracts.run_spec import Workload
from driple.contracts.zoo import DATASETS as READS
from driple.contracts.zoo import IMAGE, MODELS, SEQUENCE
from driple.pipeline.datasets.splits import architecture_side, empty_sides, random_side


def test_sides_of_families_are_golden() -> None:
    # A family that changes its side moves rows of every dataset that exists.
    sides = {model.family: architecture_side(model.family) for model in MODELS.values()}
    assert {family for family, side in sides.items() if side == VAL} == {"densenet", "trivial", "nmt"}
    assert {family for family, side in sides.items() if side == TEST} == {
        "alexnet",
        "overfeat",
        "mobilenet",
        "transformer",
    }
    assert random_side(Workload("resnet20", "cifar10", 32, image_size=32)) == "val"


def test_every_side_of_the_zoo_has_images_and_sequences_and_about_its_share() -> None:
    count: Counter[str] = Counter()
    kinds: dict[str, set[str]] = {side: set() for side in SIDES}
    for model in MODELS.values():
        side = architecture_side(model.family)
        count[side] += 1
        kinds[side].add(READS[model.datasets[0]].kind)
    for side, share in ((TRAIN, 0.6), (VAL, 0.2), (TEST, 0.2)):
        assert abs(count[side] / len(MODELS) - share) < 0.05
        assert {IMAGE, SEQUENCE} <= kinds[side]


def test_random_sides_are_about_sixty_twenty_twenty() -> None:
    count = Counter(random_side(Workload("lenet", "imagenet", batch)) for batch in range(1, 4001))
    assert abs(count[TRAIN] / 4000 - 0.6) < 0.03
    assert abs(count[VAL] / 4000 - 0.2) < 0.03


def test_another_batch_size_may_change_the_random_side() -> None:
    one = Workload("lenet", "imagenet", 8)
    assert len({random_side(replace(one, batch_size=batch)) for batch in range(1, 50)}) == 3


def test_small_datasets_say_which_sides_are_empty() -> None:
    assert empty_sides([TRAIN, TRAIN, None]) == (VAL, TEST)
    assert empty_sides(SIDES) == ()
    assert empty_sides([]) == SIDES


@given(st.text())
def test_any_name_has_one_side(name: str) -> None:
    if name.isprintable():
        assert architecture_side(name) == architecture_side(name) in SIDES
