from __future__ import annotations

import numpy as np
import pytest

from driple.contracts.run_spec import Workload
from driple.workloads.data import inputs

IMAGES = Workload("resnet50", "imagenet", 64, image_size=50)
TEXT = Workload("transformer", "europarl", 64, sequence_length=12)
RATINGS = Workload("ncf", "movielens", 64)


@pytest.mark.parametrize("work", [IMAGES, TEXT, RATINGS], ids=lambda work: work.dataset)
def test_a_batch_follows_from_seed_worker_and_step(work: Workload) -> None:
    def entry(seed: int, worker: int, step: int = 0) -> bytes:
        return b"".join(array.tobytes() for array in inputs.example_batch(work, seed, worker, step).values())

    assert entry(1, 0) == entry(1, 0)
    assert len({entry(1, 0), entry(2, 0), entry(1, 1), entry(1, 0, 1)}) == 4


def test_images_are_of_few_classes_and_each_class_looks_like_itself() -> None:
    batch = inputs.example_batch(IMAGES, 1, 0)
    assert batch["image"].shape == (64, 50, 50, 3)
    assert batch["image"].dtype == np.float32
    assert 0.3 < batch["image"].std() < 0.6
    assert set(batch["label"]) <= set(range(0, 1000, 100))
    assert batch["label"].dtype == np.int32
    other = inputs.example_batch(IMAGES, 2, 1)
    near = [np.abs(other["image"] - image).mean(axis=(1, 2, 3)).argmin() for image in batch["image"]]
    assert np.mean(other["label"][near] == batch["label"]) > 0.9, "across seeds and workers"


def test_a_translation_is_a_function_of_its_source() -> None:
    batch = inputs.example_batch(TEXT, 1, 0)
    assert batch["source"].shape == (64, 12)
    assert batch["target"].shape == (64, 13)
    assert (batch["target"][:, 0] == inputs.BEGIN).all()
    words = dict(zip(batch["source"].ravel(), batch["target"][:, 1:].ravel(), strict=True))
    assert all(words[s] == t for s, t in zip(batch["source"].ravel(), batch["target"][:, 1:].ravel(), strict=True))
    assert min(words) >= inputs.FIRST_WORD
    assert max(words) < inputs.FIRST_WORD + inputs.WORDS


def test_ratings_are_about_half_and_half() -> None:
    batch = inputs.example_batch(Workload("ncf", "movielens", 2000), 1, 0)
    assert set(batch["label"]) == {0, 1}
    assert 0.3 < batch["label"].mean() < 0.7
    assert max(batch["user"].max(), batch["item"].max()) < inputs.ACTIVE
