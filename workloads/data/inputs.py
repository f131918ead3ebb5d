"""Batches of examples: synthetic ones that can be learnt, or the user's files.

Synthetic examples are made on the worker's CPU, new ones at every step, from a handful of random numbers: an image is
its class's 8x8 pattern plus noise, enlarged; a sequence counts up in steps and its translation counts down; a rating
follows from two groups. So input costs next to nothing beside a step, the constants in the graph stay under 10 kB,
and labels are a function of the input, so that the loss goes down.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from driple.contracts.run_spec import Workload
from driple.contracts.zoo import IMAGE, SEQUENCE
from driple.workloads.models.registry import dataset_of, size_of

CLASSES = 10
"""Classes that synthetic images have, of all that the dataset has: 1000 would take thousands of steps to learn."""
WORDS = 512
"""Words that synthetic text uses."""
BEGIN = 1
"""Token before the first word of a target."""
FIRST_WORD = 2
ACTIVE = 256
"""Users and items that synthetic ratings are about."""
_SIDE = 8
_SPREAD = 0.5
"""Of pixels: about that of photographs whose bytes are mapped to -1 to 1."""
_NOISE = 0.4
"""Share of the spread that says nothing about the class."""


def batch_tensors(workload: Workload, *, seed: int, worker: int, data_dir: str | None) -> dict[str, Any]:
    """One batch as tensors of the current TF1 graph: another one each time they are evaluated.

    Args:
        workload: model, dataset and sizes.
        seed: of the run.
        worker: index of the worker: each sees other examples.
        data_dir: folder with the dataset's files; None for synthetic input.

    Returns:
        Images: `image` [batch, size, size, 3] and `label` [batch]. Sequences: `source` [batch, length] and `target`
        [batch, length + 1], which starts with `BEGIN`. Ratings: `user`, `item`, `label` [batch].

    Raises:
        BadInput: files that are missing or not in the dataset's format, with what was expected.
    """
    import tensorflow as tf

    with tf.compat.v1.device("/cpu:0"), tf.compat.v1.name_scope("input"):
        if data_dir is not None:
            from driple.workloads.data import input_files

            return input_files.batch_tensors(workload, seed=seed, worker=worker, data_dir=data_dir)
        seeds = [int(number) for number in np.random.SeedSequence([seed, worker]).generate_state(4) >> 1]
        return _examples(
            workload,
            _Tools(
                integers=lambda size, limit: tf.random.uniform([size], 0, limit, tf.int32, seed=seeds.pop()),
                noise=lambda shape: tf.random.normal(shape, seed=seeds.pop()),
                enlarge=lambda images, side: tf.compat.v1.image.resize(images, [side, side], "nearest"),
                pick=tf.gather,
                join=lambda parts: tf.concat(parts, axis=1),
                whole=lambda values: tf.cast(values, tf.int32),
            ),
        )


def example_batch(workload: Workload, seed: int, worker: int, step: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """One synthetic batch as arrays, for eager loops: of the same kind as `batch_tensors`, not the same numbers."""
    random = np.random.default_rng([seed, worker, step])

    def enlarge(images: Any, side: int) -> Any:
        rows: Any = np.arange(side) * _SIDE // side
        return images[:, rows][:, :, rows]

    return _examples(
        workload,
        _Tools(
            integers=lambda size, limit: random.integers(0, limit, size, dtype=np.int32),
            noise=lambda shape: random.standard_normal(shape, dtype=np.float32),
            enlarge=enlarge,
            pick=lambda table, rows: table[rows],
            join=lambda parts: np.concatenate(parts, axis=1),
            whole=lambda values: np.asarray(values, dtype=np.int32),
        ),
    )


@dataclass(frozen=True)
class _Tools:
    """The few things that tensors and arrays do not spell alike."""

    integers: Callable[[int, int], Any]
    """`integers(size, limit)`: random, below the limit."""
    noise: Callable[[tuple[int, ...]], Any]
    """Standard normal numbers of a shape."""
    enlarge: Callable[[Any, int], Any]
    """Images to another side, each pixel repeated."""
    pick: Callable[[Any, Any], Any]
    """Rows of a table."""
    join: Callable[[list[Any]], Any]
    """Columns side by side."""
    whole: Callable[[Any], Any]
    """To 32-bit integers."""


def _examples(workload: Workload, tools: _Tools) -> dict[str, Any]:
    dataset, size = dataset_of(workload), size_of(workload)
    batch = workload.batch_size
    if dataset.kind == IMAGE:
        # The patterns are the same for every seed and worker: all must learn the same function.
        patterns = np.random.default_rng(0).standard_normal((CLASSES, _SIDE, _SIDE, 3), dtype=np.float32)
        kind = tools.integers(batch, CLASSES)
        noise = tools.noise((batch, _SIDE, _SIDE, 3))
        small = tools.pick(_SPREAD * (1 - _NOISE) * patterns, kind) + _SPREAD * _NOISE * noise
        return {"image": tools.enlarge(small, size), "label": kind * (dataset.classes // CLASSES)}
    if dataset.kind == SEQUENCE:
        words = min(WORDS, dataset.classes - FIRST_WORD)
        start, stride = tools.integers(batch, words)[:, None], tools.integers(batch, 4)[:, None] + 1
        count = (start + stride * np.arange(size, dtype=np.int32)) % words
        begin: Any = np.full((batch, 1), BEGIN, dtype=np.int32)
        return {"source": FIRST_WORD + count, "target": tools.join([begin, FIRST_WORD + words - 1 - count])}
    user, item = tools.integers(batch, ACTIVE), tools.integers(batch, ACTIVE)
    return {"user": user, "item": item, "label": tools.whole(user % 8 + item % 8 >= 8)}
