"""Workloads small enough for a test, and what is done with them in a plain TF1 session."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from driple.contracts.run_spec import Workload
from driple.contracts.zoo import DATASETS, IMAGE, MODELS, SEQUENCE, ordinary_size
from driple.workloads.data import inputs
from driple.workloads.models import registry
from driple.workloads.runtime import optimisers


def workload(model: str, **sizes: Any) -> Workload:
    """Smallest images or 8 tokens, a quarter of the width, unless `sizes` says otherwise."""
    dataset = DATASETS[sizes.pop("dataset", MODELS[model].datasets[0] if model in MODELS else "cifar10")]
    small: dict[str, Any] = {"batch_size": 2, "width": 0.25}
    if dataset.kind == IMAGE:
        known = registry.VARIANTS.get((model, dataset.name)) or registry.TABLE.get(model)
        small["image_size"] = max(known.minimum, 8) if known else 8
    if dataset.kind == SEQUENCE:
        small["sequence_length"] = 8
    return Workload(model=model, dataset=dataset.name, **{**small, **sizes})


def ordinary(model: str, dataset: str | None = None) -> Workload:
    """The standard configuration, with a batch of one."""
    known = DATASETS[dataset or MODELS[model].datasets[0]]
    size = ordinary_size(MODELS[model], known)
    field = {IMAGE: "image_size", SEQUENCE: "sequence_length"}.get(known.kind)
    return workload(model, dataset=known.name, batch_size=1, width=1.0, **({field: size} if field else {}))


@contextmanager
def graph() -> Iterator[Any]:
    """A TF1 graph with ref variables, as a worker builds it."""
    import tensorflow.compat.v1 as v1

    def ref_variable(make: Callable[..., Any], **options: Any) -> Any:
        return make(**{**options, "use_resource": False})

    v1.logging.set_verbosity(v1.logging.ERROR)
    v1.disable_v2_behavior()
    gc.disable()  # all that is made is kept: a tenth of the time goes into looking for what is not
    try:
        with v1.Graph().as_default() as built, v1.variable_creator_scope(ref_variable):
            yield built
    finally:
        gc.enable()


def losses(work: Workload, steps: int, *, code_path: str | None = None, data_dir: str | None = None) -> list[float]:
    """Trains in a plain session; the loss of every step."""
    import tensorflow.compat.v1 as v1

    with graph():
        v1.set_random_seed(1)
        batch = inputs.batch_tensors(work, seed=1, worker=0, data_dir=data_dir)
        built = registry.build(work, batch, code_path=code_path)
        optimiser = optimisers.make(work.optimiser, DATASETS[work.dataset].kind)
        train = v1.group(optimiser.minimize(built.loss, var_list=built.trainable), *built.updates)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            return [float(session.run([built.loss, train])[0]) for _ in range(steps)]


def parameter_count(work: Workload) -> int:
    """Trainable parameters. The graph is built and never run, so no weight is allocated."""
    import tensorflow.compat.v1 as v1

    with v1.Graph().as_default():
        shapes = registry.input_shapes(work).items()
        batch = {name: v1.placeholder(kind, [work.batch_size, *shape]) for name, (shape, kind) in shapes}
        return sum(int(variable.shape.num_elements()) for variable in registry.build(work, batch).trainable)


def fall(values: list[float]) -> float:
    """How far the mean of the last quarter is below that of the first."""
    quarter = max(1, len(values) // 4)
    return float(np.mean(values[:quarter]) - np.mean(values[-quarter:]))
