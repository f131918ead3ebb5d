"""Batches of examples as in workloads/data/inputs.py: the same patterns, classes and rules, as torch tensors.

Images are [batch, 3, size, size]. The generator is torch's, so examples are not the same as TensorFlow's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from driple.contracts.errors import BadInput
from driple.contracts.run_spec import Workload
from driple.contracts.zoo import IMAGE
from driple.workloads.data import inputs
from driple.workloads.models.registry import dataset_of, size_of

Batch = dict[str, torch.Tensor]


def batches(workload: Workload, *, seed: int, worker: int, data_dir: str | None) -> Iterator[Batch]:
    """Endless batches. Arguments as for `inputs.batch_tensors`. Raises BadInput for files that cannot be read."""
    if data_dir is not None:
        raise BadInput("framework torch trains on synthetic input only; leave out data_dir in the inventory")
    random = torch.Generator().manual_seed(int(np.random.SeedSequence([seed, worker]).generate_state(1)[0]))
    make: Callable[[Workload, torch.Generator], Callable[[], Batch]]
    make = _images if dataset_of(workload).kind == IMAGE else _sequences
    batch = make(workload, random)
    return iter(batch, None)


def empty_batch(workload: Workload) -> Batch:
    """A batch without values on the device `meta`."""
    count, size = workload.batch_size, size_of(workload)
    if dataset_of(workload).kind == IMAGE:
        shapes = {"image": ((count, 3, size, size), torch.float32), "label": ((count,), torch.int64)}
    else:
        shapes = {"source": ((count, size), torch.int64), "target": ((count, size + 1), torch.int64)}
    return {name: torch.empty(shape, dtype=dtype, device="meta") for name, (shape, dtype) in shapes.items()}


def _images(workload: Workload, random: torch.Generator) -> Callable[[], Batch]:
    spread, noise, side = inputs.SPREAD, inputs.NOISE, inputs.SIDE
    patterns = np.random.default_rng(0).standard_normal((inputs.CLASSES, side, side, 3), dtype=np.float32)
    means = spread * (1 - noise) * torch.from_numpy(patterns).permute(0, 3, 1, 2)
    count, size = workload.batch_size, size_of(workload)
    labels_per_kind = dataset_of(workload).classes // inputs.CLASSES

    def batch() -> Batch:
        kind = torch.randint(inputs.CLASSES, (count,), generator=random)
        small = means[kind] + spread * noise * torch.randn((count, 3, side, side), generator=random)
        image = torch.nn.functional.interpolate(small, size=(size, size), mode="nearest")
        return {"image": image, "label": kind * labels_per_kind}

    return batch


def _sequences(workload: Workload, random: torch.Generator) -> Callable[[], Batch]:
    count, size = workload.batch_size, size_of(workload)
    words = min(inputs.WORDS, dataset_of(workload).classes - inputs.FIRST_WORD)
    place = torch.arange(size)
    begin = torch.full((count, 1), inputs.BEGIN)

    def integers(limit: int) -> Any:
        return torch.randint(limit, (count, 1), generator=random)

    def batch() -> Batch:
        counted = (integers(words) + (integers(4) + 1) * place) % words
        target = torch.cat([begin, inputs.FIRST_WORD + words - 1 - counted], dim=1)
        return {"source": inputs.FIRST_WORD + counted, "target": target}

    return batch
