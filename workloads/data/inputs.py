"""Batches of examples: synthetic ones that can be learned, or from the user's files.

Synthetic examples are made on the worker's CPU, new ones at every step, from a few random numbers: an image is the 8x8
pattern of its class plus noise, enlarged; a sequence counts up in steps and its translation counts down; a rating
depends on two groups. So input is cheap compared to a step, the constants in the graph stay under 10 kB, and labels are
a function of the input, so that the loss falls.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from driple.contracts.run_spec import Workload
from driple.contracts.zoo import IMAGE, SEQUENCE
from driple.workloads.models.registry import dataset_of, size_of

CLASSES = 10
"""Classes of synthetic images: 1000 would take thousands of steps to learn."""
WORDS = 512
"""Vocabulary of synthetic text."""
BEGIN = 1
"""Token before the first word of a target."""
FIRST_WORD = 2
ACTIVE = 256
"""Users and items of synthetic ratings."""
SIDE = 8
"""Side of the patterns."""
SPREAD = 0.5
"""Standard deviation of pixels: about that of photographs scaled to -1 to 1."""
NOISE = 0.4
"""Share of the spread that does not depend on the class."""


def batch_tensors(workload: Workload, *, seed: int, worker: int, data_dir: str | None) -> dict[str, Any]:
    """One batch as tensors; those of a graph give a new batch at each evaluation.

    Args:
        workload: model, dataset and sizes.
        seed: seed of the run.
        worker: index of the worker: each gets other examples.
        data_dir: folder with the dataset's files; None for synthetic input.

    Returns:
        Images: `image` [batch, size, size, 3] and `label` [batch]. Sequences: `source` [batch, length] and `target`
        [batch, length + 1], which starts with `BEGIN`. Ratings: `user`, `item`, `label` [batch].

    Raises:
        BadInput: files are missing or not in the format of the dataset.
    """
    import tensorflow as tf

    with tf.compat.v1.device("/cpu:0"), tf.compat.v1.name_scope("input"):
        if data_dir is not None:
            from driple.workloads.data import input_files

            return input_files.batch_tensors(workload, seed=seed, worker=worker, data_dir=data_dir)
        seeds = [int(number) for number in np.random.SeedSequence([seed, worker]).generate_state(4) >> 1]
        return _synthetic(workload, seeds)


def _synthetic(workload: Workload, seeds: list[int]) -> dict[str, Any]:
    import tensorflow as tf

    dataset, size = dataset_of(workload), size_of(workload)
    batch = workload.batch_size

    def integers(limit: int) -> Any:
        return tf.random.uniform([batch], 0, limit, tf.int32, seed=seeds.pop())

    if dataset.kind == IMAGE:
        # The patterns are the same for every seed and worker: all must learn the same function.
        patterns = np.random.default_rng(0).standard_normal((CLASSES, SIDE, SIDE, 3), dtype=np.float32)
        kind = integers(CLASSES)
        noise = tf.random.normal((batch, SIDE, SIDE, 3), seed=seeds.pop())
        small = tf.gather(SPREAD * (1 - NOISE) * patterns, kind) + SPREAD * NOISE * noise
        image = tf.compat.v1.image.resize(small, [size, size], "nearest")
        return {"image": image, "label": kind * (dataset.classes // CLASSES)}
    if dataset.kind == SEQUENCE:
        words = min(WORDS, dataset.classes - FIRST_WORD)
        start, stride = integers(words)[:, None], integers(4)[:, None] + 1
        count = (start + stride * np.arange(size, dtype=np.int32)) % words
        begin: Any = np.full((batch, 1), BEGIN, dtype=np.int32)
        return {
            "source": FIRST_WORD + count,
            "target": tf.concat([begin, FIRST_WORD + words - 1 - count], axis=1),
        }
    user, item = integers(ACTIVE), integers(ACTIVE)
    return {"user": user, "item": item, "label": tf.cast(user % 8 + item % 8 >= 8, tf.int32)}
